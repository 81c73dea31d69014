package usage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

const forgedEpoch = 5

// files are a journal's directory at a time.
type files map[string][]byte

func filesOf(t *testing.T, dir string) files {
	t.Helper()
	all := make(files)
	for _, name := range []string{"5.log", "5.cells.0"} { // in this order, where it goes on meanwhile
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

// forge changes files as somebody does who has not the secret, and may have kept them as they were.
func forge(rng *rand.Rand, now files, before []files, cellsAlone bool) (done string) {
	log, cells := slices.Clone(now["5.log"]), slices.Clone(now["5.cells.0"])
	used := 8 * journal.CellSize
	written := len(log)
	for written > 0 && log[written-1] == 0 { // it is backed ahead
		written--
	}
	for range 1 + rng.IntN(4) {
		kind := rng.IntN(10)
		if cellsAlone {
			kind = rng.IntN(5)
			if kind == 4 {
				kind = 9
			}
		}
		done += fmt.Sprint(" ", kind)
		old := before[rng.IntN(len(before))]
		switch kind {
		case 0: // any bytes of cells
			for range 1 + rng.IntN(8) {
				cells[journal.CellSize+rng.IntN(used)] = byte(rng.Uint32())
			}
		case 1: // a counter, to a number that may be likely
			at := journal.CellSize + 8*rng.IntN(used/8)
			n := binary.LittleEndian.Uint64(cells[at:]) + uint64(rng.IntN(2000)) - 500
			if rng.IntN(3) == 0 {
				n = rng.Uint64()
			}
			binary.LittleEndian.PutUint64(cells[at:], n)
		case 2: // a cell in another's place
			from, to := 1+rng.IntN(8), 1+rng.IntN(8)
			copy(cells[to*journal.CellSize:][:journal.CellSize], cells[from*journal.CellSize:][:journal.CellSize])
		case 3:
			cells = slices.Clone(old["5.cells.0"])
		case 4:
			log = slices.Clone(old["5.log"])
		case 5, 6:
			log[rng.IntN(min(written, len(log)))] ^= byte(1 + rng.IntN(255))
		case 7:
			log = log[:rng.IntN(len(log)+1)]
		case 8: // what was there before, behind what is there
			at := rng.IntN(min(len(old["5.log"]), len(log)) + 1)
			log = slices.Concat(old["5.log"][:at], log[at:])
		case 9: // that the life was given up
			for range 1 + rng.IntN(8) {
				cells[rng.IntN(journal.CellSize)] = byte(rng.Uint32())
			}
		}
		written = min(written, len(log))
		if written == 0 {
			break
		}
	}
	now["5.log"], now["5.cells.0"] = log, cells
	switch rng.IntN(10) {
	case 0:
		now["5.cells.0"] = cells[:rng.IntN(len(cells))]
	case 1:
		delete(now, "5.cells.0")
	default:
		return done
	}
	return done + " cells cut"
}

// recoverForged settles what is left of the files. An error that refuses them is none here: nothing is settled then.
func recoverForged(t *testing.T, secret []byte, f files, m *model) (refused bool) {
	t.Helper()
	dir := t.TempDir()
	for name, b := range f {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := journal.Open(dir, secret)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	lives, err := d.Lives()
	if err != nil || len(lives) == 0 {
		return true
	}
	r := NewRecovery("gw", forgedEpoch)
	r.Sealed = lives[0].Sealed()
	l, err := d.Resume(lives[0], r.Record)
	if err != nil {
		if errors.Is(err, ErrRecord) {
			t.Errorf("a record that verifies cannot be read: %v", err)
		}
		return true
	}
	o, err := r.Finish(l)
	if err == nil {
		err = m.drain(o)
	}
	if err != nil && o.State().AsideReports == 0 {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return false
}

// lifeUnder begins a life under a secret.
func lifeUnder(t *testing.T, dir string, secret []byte) (*journal.Dir, *journal.Life, *Journal, *Outbox) {
	t.Helper()
	d, err := journal.Open(dir, secret)
	if err != nil {
		t.Fatal(err)
	}
	life, err := d.Begin("gw", forgedEpoch)
	if err != nil {
		t.Fatal(err)
	}
	j, o := NewJournal(life), NewOutbox("gw", forgedEpoch)
	o.Keep(j)
	return d, life, j, o
}

// Whatever somebody without the secret does to the files of a life that was killed, nobody is billed for a unit that it had
// not counted. If that is done to cells alone all that was sealed is billed; if nothing is done nothing is lost.
func TestNobodyIsBilledForForgedCells(t *testing.T) {
	secret := []byte("a secret of this test")
	var honest, forged, refused int
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		d, life, j, o := lifeUnder(t, dir, secret)
		m := &model{reports: make(map[int64][]ledger.Report)}
		r := bucketsOf(j)
		counted, vouched, flying := make(map[string]int64), make(map[string]int64), make(map[string]int64)
		slot, now := int64(300), int64(1_000_000)
		j.Slot(slot)
		before := []files{filesOf(t, dir)}
		for step := range 60 {
			now += 1000
			switch rng.IntN(10) {
			case 0:
				r.seal()
				vouched = byUser(counted)
			case 1:
				r.collect(&o.Usage, slot, now)
				j.Flush()
				if rng.IntN(2) == 0 {
					o.Freeze(now/1000, false)
				}
			case 2:
				sent := slices.Clone(o.Next(2, 1<<20))
				var receipts []ledger.Receipt
				for _, p := range sent {
					receipts = append(receipts, m.settle(p))
				}
				if rng.IntN(3) > 0 {
					o.Receive(sent, receipts, forgedEpoch+1)
				}
			case 3:
				if len(before) < 6 {
					before = append(before, filesOf(t, dir))
				}
			default:
				user := fmt.Sprintf("u%d", rng.IntN(4))
				e, key := r.touch(user, now), "a user="+user+" p"
				n := 1 + rng.Int64N(3)
				e.Hold(n)
				if e.Ask(now, 0, false, false); e.State(now).Tokens < n {
					e.Apply(now, lease.Grant{Number: e.Renew(now, false).Number, Tokens: 4, TTL: 10_000_000, DenyFor: 10})
				}
				switch ok := e.Take(n); {
				case !ok:
					e.Refuse(n)
				case step == 59 || rng.IntN(4) == 0:
					if rng.IntN(2) == 0 {
						r.seal()
					}
					if step == 59 {
						flying[key] = n // it is killed
						continue
					}
					e.PutBack(n)
				default:
					counted[key] += n
				}
				e.Release(n)
			}
		}
		killed := filesOf(t, dir)
		before = append(before, killed)
		for attack := range 30 {
			f, done := files{"5.log": killed["5.log"], "5.cells.0": killed["5.cells.0"]}, ""
			if attack > 0 {
				done = forge(rng, f, before, attack%2 == 0)
			}
			settled := m.copy()
			no := recoverForged(t, secret, f, settled)
			all, billed, _ := settled.units()
			for k, n := range billed {
				if n > counted[k] {
					t.Fatalf("seed %d, forged%s: %d units of %s are billed, and %d were counted", seed, done, n, k, counted[k])
				}
			}
			of := byUser(billed)
			for k, n := range vouched {
				if attack%2 == 0 && of[k] < n {
					t.Fatalf("seed %d, forged%s: %d units of %s are billed, and %d were sealed (refused: %v)", seed, done, of[k], k, n, no)
				}
			}
			for k, n := range counted {
				if attack == 0 && (all[k] < n || all[k] > n+flying[k]) {
					t.Fatalf("seed %d: %d units of %s are billed or in quarantine, %d were counted, %d under way", seed, all[k], k, n, flying[k])
				}
			}
			switch {
			case no:
				refused++
			case attack == 0:
				honest++
			default:
				forged++
			}
		}
		runtime.KeepAlive(r)
		if err := errors.Join(life.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if honest != 20 || forged < 300 || refused == 0 {
		t.Errorf("%d honest, %d forged, %d refused: this proves little", honest, forged, refused)
	}
}

// still copies a cell as it is at one instant, as a kill leaves it.
func still(c *bucket.Cell, to []byte) {
	var was [8]int64
	for first, same := true, false; !same; first = false {
		same = !first
		for i := range counters(c) {
			n := counters(c)[i].Load()
			same = same && n == was[i]
			was[i] = n
		}
	}
	for i, n := range was {
		binary.LittleEndian.PutUint64(to[8*i:], uint64(n))
	}
}

// Requests, reports and seals go on at once: whenever it is killed, nobody is billed for more than was
// admitted by then, and none of it is lost.
func TestSealsBesideRequests(t *testing.T) {
	secret := []byte("a secret of this test")
	dir := t.TempDir()
	d, life, j, o := lifeUnder(t, dir, secret)
	j.Slot(300)
	r := bucketsOf(j)
	for i := range 4 {
		r.touch(fmt.Sprintf("u%d", i), 1)
	}
	var admitted, asked atomic.Int64
	var wg sync.WaitGroup
	ended := make(chan struct{})
	beside := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					f()
				}
			}
		})
	}
	for _, f := range r.of {
		beside(func() {
			asked.Add(2)
			f.Hold(2)
			switch ok := f.Take(2); {
			case !ok:
				f.Admit(2)
				admitted.Add(2)
			case rand.IntN(3) == 0:
				f.PutBack(2)
			default:
				admitted.Add(2)
			}
			f.Release(2)
			runtime.Gosched()
		})
	}
	seals := 0
	beside(func() { r.seal(); seals++ })
	for i := range 40 {
		now := int64(i+2) * 1000
		for _, f := range r.of {
			f.Apply(now, lease.Grant{Number: f.Renew(now, false).Number, Tokens: 50, TTL: 10_000_000, DenyFor: 10})
		}
		r.collect(&o.Usage, 300, now)
		j.Flush()
		if i%8 == 7 {
			o.Freeze(now/1000, false)
		}
		least := admitted.Load()
		killed := filesOf(t, dir) // first the log
		for _, f := range r.of {
			still(f.Cell(), killed["5.cells.0"][journal.CellSize*int(j.feeds[f.Cell()].number):])
		}
		most, under := admitted.Load(), asked.Load()
		m := &model{reports: make(map[int64][]ledger.Report)}
		if recoverForged(t, secret, killed, m) {
			t.Fatal("it is refused")
		}
		sum := func(units map[string]int64) (n int64) {
			for _, u := range units {
				n += u
			}
			return n
		}
		all, billed, _ := m.units()
		if sum(billed) > most || sum(all) < least || sum(all) > under {
			t.Fatalf("kill %d: %d units are billed and %d in all; %d to %d were admitted, and %d asked for", i, sum(billed), sum(all), least, most, under)
		}
	}
	close(ended)
	wg.Wait()
	if seals < 40 || admitted.Load() < 1000 {
		t.Errorf("%d seals, %d units: this proves little", seals, admitted.Load())
	}
	runtime.KeepAlive(r)
	if err := errors.Join(life.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
