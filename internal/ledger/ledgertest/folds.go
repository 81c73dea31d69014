package ledgertest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// entriesGrowWithKeys: 100 agents report 3 slots of the same keys, each at its own
// jittered times, while the ledger folds on its own schedule. A key's slot gets at
// most an entry for each block that was folded during it, and one.
func entriesGrowWithKeys(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	const (
		count    = 100
		slots    = 3
		slot     = 5 * time.Minute
		every    = 50 * time.Second
		foldEach = 60 * time.Second
	)
	rng := rand.New(rand.NewPCG(7, 7))
	agents := make([]agent, count)
	due := make([]time.Duration, count)
	for i := range agents {
		agents[i] = agent{id: fmt.Sprintf("agent-%03d", i)}
		due[i] = time.Duration(rng.Int64N(int64(every)))
	}
	begin := clock.Now()
	var want int64
	for at := time.Duration(0); at < slots*slot+2*every; at += time.Second {
		clock.Advance(begin.Add(at).Sub(clock.Now()))
		var batch []ledger.Report
		for i := range agents {
			if at < due[i] {
				continue
			}
			// What was counted since the last report, cut where a slot ended.
			from, to := begin.Add(due[i]-every), clock.Now()
			var rows []ledger.Row
			for t := from.Truncate(slot); t.Before(to); t = t.Add(slot) {
				if t.Before(begin) || !t.Before(begin.Add(slots*slot)) {
					continue
				}
				for k := range int64(5) {
					r := row(t, fmt.Sprintf("tenant-%d", k), k+1)
					rows = append(rows, r)
					want += r.Admitted
				}
			}
			batch = append(batch, agents[i].report(to, rows...))
			due[i] = at + every + time.Duration(rng.Int64N(int64(every/5)))
		}
		receipts, err := s.Settle(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range receipts {
			if r.Status != ledger.Settled {
				t.Fatalf("%s: got %s (%s)", batch[i].Agent, statusName(r.Status), r.Message)
			}
		}
		if at%foldEach == foldEach-time.Second {
			if _, err := drain(t.Context(), s, clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "", want); err != nil {
		t.Error(err)
	}
	most, n := int(slot/foldEach)+1, 0
	for _, r := range e.Query(t, "SELECT slot, key, count(*) FROM entries GROUP BY slot, key") {
		n++
		if got, _ := strconv.Atoi(r[2]); got > most {
			t.Errorf("slot %s key %s: got %d entries, want at most %d", r[0], r[1], got, most)
		}
	}
	if want := slots * 5; n != want {
		t.Errorf("got entries for %d keys and slots, want %d", n, want)
	}
}

// chain: blocks are sealed one on another, and roll-ups are the sum of entries.
func chain(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	a, b := agent{id: "a"}, agent{id: "b", epoch: 4}
	for i := range int64(3) {
		reports := []ledger.Report{
			a.report(clock.Now(), row(clock.Now(), "acme", 10+i), row(clock.Now(), "zeta", 1)),
			a.report(clock.Now()),
			b.report(clock.Now(), row(clock.Now(), "acme", 100)),
		}
		if _, err := s.Settle(t.Context(), reports); err != nil {
			t.Fatal(err)
		}
		if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 2 {
			t.Fatalf("fold: got %d, %v, want 2 reports that hold rows", n, err)
		}
		clock.Advance(5 * time.Minute)
	}
	if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 0 {
		t.Errorf("fold with nothing to do: got %d, %v", n, err)
	}
	previous := make([]byte, 32)
	blocks := e.Query(t, "SELECT height, previous, hash, reports, entries, sources FROM blocks ORDER BY height")
	if len(blocks) != 3 {
		t.Fatalf("got %d blocks, want 3", len(blocks))
	}
	for i, r := range blocks {
		block := ledger.Block{Height: int64(i + 1), Reports: 2, Sources: unhex(t, r[5])}
		copy(block.Previous[:], unhex(t, r[1]))
		for _, r := range e.Query(t, `SELECT slot, tenant, limit_name, meter, version, attributes, admitted, overage, denied, plan
			FROM entries e JOIN keys k ON k.key = e.key WHERE height = `+r[0]+` ORDER BY n`) {
			block.Entries = append(block.Entries, ledger.Row{
				Slot: number(t, r[0]), Tenant: r[1], Limit: r[2], Meter: r[3], Version: number(t, r[4]), Plan: r[9], Attributes: r[5],
				Admitted: number(t, r[6]), Overage: number(t, r[7]), Denied: number(t, r[8]),
			})
		}
		block.Merged = len(block.Entries)
		if !bytes.Equal(block.Previous[:], previous) {
			t.Errorf("block %d: previous is %x, want %x", i+1, block.Previous, previous)
		}
		if got, want := block.Sum(), unhex(t, r[2]); !bytes.Equal(got[:], want) {
			t.Errorf("block %d: hash of what is stored is %x, want %x", i+1, got, want)
		}
		sources, err := ledger.DecodeSources(block.Sources)
		seq := int64(2*i + 1)
		want := []ledger.Source{
			{Epoch: ledger.Epoch{Agent: "a"}, First: seq, Last: seq, Count: 1},
			{Epoch: ledger.Epoch{Agent: "b", Epoch: 4}, First: int64(i + 1), Last: int64(i + 1), Count: 1},
		}
		if err != nil || !slices.Equal(sources, want) {
			t.Errorf("block %d: sources %v, %v, want %v", i+1, sources, err, want)
		}
		if number(t, r[4]) != int64(len(block.Entries)) || len(block.Entries) != 2 {
			t.Errorf("block %d: got %d entries, its row says %s, want 2", i+1, len(block.Entries), r[4])
		}
		previous = unhex(t, r[2])
	}
	WantRollups(t, e)
}

// WantRollups fails the test unless roll-ups are what entries add up to.
func WantRollups(t testing.TB, e Engine) {
	t.Helper()
	rolled := text(e.Query(t, "SELECT key, hour, admitted, overage, denied FROM rollups ORDER BY key, hour"))
	summed := text(e.Query(t, `SELECT key, slot - slot % 3600, sum(admitted), sum(overage), sum(denied) FROM entries
		GROUP BY key, slot - slot % 3600 ORDER BY key, slot - slot % 3600`))
	if rolled != summed {
		t.Errorf("roll-ups: got\n%swant the sums of entries\n%s", rolled, summed)
	}
}

// folders: several servers fold at once while reports come in; each is folded once.
func folders(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	o := ledger.Options{Now: clock.Now}
	servers := []ledger.Store{e.Open(t, o), e.Open(t, o), e.Open(t, o)}
	const reports = 60
	var folded atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(func() {
			f := ledger.NewFolder(s, time.Millisecond, nil)
			f.Observe = func(n int, _ time.Duration, err error) {
				if err != nil {
					t.Errorf("fold: %v", err)
				}
				if folded.Add(int64(n)) >= reports {
					stop()
				}
			}
			if err := f.Run(ctx); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	g := agent{id: "a"}
	for i := range reports {
		if err := wantStatus(t.Context(), servers[i%3], g.report(clock.Now(), row(clock.Now(), "acme", 3)), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if got := folded.Load(); got != reports {
		t.Errorf("folded %d reports, want %d", got, reports)
	}
	if err := wantTotal(t.Context(), servers[0], "acme", 3*reports); err != nil {
		t.Error(err)
	}
	if got := text(e.Query(t, "SELECT sum(reports) FROM blocks")); got != fmt.Sprintln(reports) {
		t.Errorf("blocks hold %s reports, want %d", got, reports)
	}
	WantRollups(t, e)
	verify(t, servers[0])
}

// interrupted: a fold that is given up at any moment is done, or was never begun.
func interrupted(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	rng := rand.New(rand.NewPCG(3, 5))
	g := agent{id: "a"}
	var want int64
	done, given := 0, 0
	for i := range 60 {
		var rows []ledger.Row
		for k := range 200 {
			rows = append(rows, row(clock.Now(), fmt.Sprintf("tenant-%d", k), int64(i+1)))
			want += int64(i + 1)
		}
		if err := wantStatus(t.Context(), s, g.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(12_000))*time.Microsecond)
		n, _, err := s.Fold(ctx, clock.Now())
		cancel()
		switch {
		case err == nil:
			done++
		case !errors.Is(err, ledger.ErrUnavailable) || n != 0:
			t.Fatalf("fold given up: got %d, %v, want none and ErrUnavailable", n, err)
		default:
			given++
		}
		if i%10 == 0 {
			if err := wantTotal(t.Context(), s, "", want); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), s, "", want); err != nil {
		t.Errorf("after %d folds that were done and %d given up: %v", done, given, err)
	}
	WantRollups(t, e)
	verify(t, s)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return b
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return n
}
