package usage

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// sealedDisk is a disk under a secret, with a journal of one bucket that admitted units of which nothing is booked.
func sealedDisk(units int64) (*disk, *Journal, *buckets) {
	d := &disk{sealed: true, stop: func(string) {}}
	j := NewJournal(d)
	j.Slot(300)
	r := bucketsOf(j)
	r.touch("u0", 1).Admit(units)
	return d, j, r
}

// wants checks what a recovery finds: units that are sealed, and others.
func (d *disk) wants(t *testing.T, what string, sealed, unsealed int64) {
	t.Helper()
	o, err := d.copy().recover("gw", 7)
	if err != nil {
		t.Fatal(err)
	}
	if s := o.State(); s.Units-s.Unsealed != sealed || s.Unsealed != unsealed {
		t.Errorf("%s: %d units are sealed and %d are not, want %d and %d", what, s.Units-s.Unsealed, s.Unsealed, sealed, unsealed)
	}
}

// A seal holds in a log that is made anew, and under another policy. It never says more than was counted.
func TestASealIsOfWhatWasCounted(t *testing.T) {
	d, j, r := sealedDisk(5)
	o := NewOutbox("gw", 7)
	d.wants(t, "not sealed", 0, 5)
	r.seal()
	d.wants(t, "sealed", 5, 0)
	records := len(d.records)
	if r.seal(); len(d.records) != records {
		t.Error("nothing was counted since, and is sealed again")
	}
	j.mu.Lock()
	put, err := j.rotateLocked(o)
	j.mu.Unlock()
	if err == nil {
		err = put()
	}
	if err != nil {
		t.Fatal(err)
	}
	d.wants(t, "in a log made anew", 5, 0)
	e := r.touch("u0", 1)
	e.Admit(2)
	j.Seal(func(seal func(*bucket.Cell, Counter)) {
		seal(e.Cell(), e)
		j.Follow(func(follow func(Fed) bool) { // meanwhile
			row, _ := e.Row(0)
			row.Version = 2
			follow(Fed{Cell: e.Cell(), Row: row, Feeds: true, Booked: func() bucket.Count { return bucket.Count{Admitted: 3} }})
		})
	})
	d.wants(t, "under a version that has not booked the last 4", 4, 0)
	o.Keep(j)
	o.Usage.Collect(e, 300, 1)
	e.Admit(1)
	for i := range counters(d.cells[0]) { // somebody made it less
		counters(d.cells[0])[i].Store(0)
	}
	j.Flush()
	d.wants(t, "in a cell that has less than was booked", 7, 0)
	runtime.KeepAlive(r)
}

// What is unsealed stays so when the ledger rejects what is before it, wherever the recovery is killed: no unit of it is
// billed, and each is in quarantine once.
func TestUnsealedUsageStaysUnsealed(t *testing.T) {
	d, _, r := sealedDisk(5)
	r.seal()
	r.touch("u0", 1).Admit(4)
	settle := func(o *Outbox) (billed, kept int64) {
		t.Helper()
		m := &model{reports: make(map[int64][]ledger.Report)}
		if err := m.drain(o); err != nil && o.State().AsideUnits != 5 { // which the first one had
			t.Fatal(err)
		}
		for _, reports := range m.reports {
			for _, p := range reports {
				if p.Unsealed {
					kept += p.After - p.Before
				} else {
					billed += p.After - p.Before
				}
			}
		}
		return billed, kept
	}
	kills := 0
	files := d.copy()
	rejected := false
	files.stop = func(where string) {
		kills++
		o, err := files.copy().recover("gw", 7)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		billed, kept := settle(o)
		if kept != 4 || billed > 5 || billed != 5 && !rejected {
			t.Errorf("killed %s: %d units are billed and %d kept, want 5 at most, and 4", where, billed, kept)
		}
	}
	o, err := files.recover("gw", 7)
	if err != nil {
		t.Fatal(err)
	}
	sent := slices.Clone(o.Next(9, 1<<20))
	if len(sent) != 2 || sent[0].Unsealed || !sent[1].Unsealed || !sent[1].Closed {
		t.Fatalf("%+v is sent, want what is sealed first", sent)
	}
	rejected = true
	o.Receive(sent, []ledger.Receipt{{Status: ledger.Rejected}, {Status: ledger.Fenced}}, 8)
	o.FreezeRest()
	files.stop = func(string) {}
	if billed, kept := settle(o); billed != 0 || kept != 4 || kills < 6 {
		t.Errorf("%d units are billed and %d kept after %d kills, want none and 4", billed, kept, kills)
	}
	runtime.KeepAlive(r)
}

// Made anew, a log has few records, of which each costs a write and a seal while requests' buckets wait.
func TestALogIsMadeAnewOfFewRecords(t *testing.T) {
	const cells = 30_000 // more than one record takes
	d := &disk{sealed: true, room: cells, stop: func(string) {}}
	j := NewJournal(d)
	r := bucketsOf(j)
	for i := range cells {
		r.touch(fmt.Sprint("user-", i), 1).Admit(1)
	}
	r.seal()
	j.mu.Lock()
	put, err := j.rotateLocked(NewOutbox("gw", 7))
	j.mu.Unlock()
	if err == nil {
		err = put()
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := len(d.records); n > 10 {
		t.Errorf("%d records of %d cells, want few", n, cells)
	}
	for _, b := range d.records {
		if len(b) > maxRecord+1000 {
			t.Errorf("a record has %d bytes", len(b))
		}
	}
	d.wants(t, "in a log made anew", cells, 0)
	runtime.KeepAlive(r)
}

// A number that somebody wrote into one cell takes no room from what others counted last, wherever the recovery is
// killed, and in all no more units are kept than a life has room for.
func TestAForgedCellTakesNobodysRoom(t *testing.T) {
	d, _, r := sealedDisk(5)
	r.seal()
	for i := range 6 {
		r.touch(fmt.Sprint("u", i), 1).Admit(int64(i + 1))
	}
	counters(r.touch("u1", 1).Cell())[3].Store(1 << 62) // refused
	for i := range 2 {
		counters(r.touch("u2", 1).Cell())[4+i].Add(1 << 61) // put in
	}
	var cut []int64
	check := func(where string, d *disk) {
		t.Helper()
		rec := NewRecovery("gw", 7)
		rec.Sealed = true
		for _, record := range d.records {
			if err := rec.Record(record); err != nil {
				t.Fatal(err)
			}
		}
		o, err := rec.Finish(d)
		if err != nil {
			t.Fatal(err)
		}
		of := make(map[string]int64)
		sum := int64(0)
		for _, p := range o.reports {
			rows, err := ledger.DecodeRows(p.Payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				of[row.Attributes] += row.Admitted
				sum += row.Admitted + row.Denied
			}
		}
		for i, want := range []int64{6, -1, -1, 4, 5, 6} {
			if got := of[fmt.Sprint("user=u", i)]; want >= 0 && got != want {
				t.Errorf("%s: %d units of u%d are found, want %d", where, got, i, want)
			}
		}
		if sum > mostUnsealed+5 {
			t.Errorf("%s: %d units, want %d at most", where, sum, mostUnsealed+5)
		}
		cut = append(cut, rec.Cut)
	}
	files := d.copy()
	files.stop = func(where string) { check("killed "+where, files.copy()) }
	check("whole", files)
	if len(cut) < 3 || slices.Max(cut) < 1<<60 {
		t.Errorf("cut: %v, want what found no room", cut)
	}
	runtime.KeepAlive(r)
}

// Of cells that are missing, what the log seals is settled, and they are counted. Without a secret the life is refused.
func TestCellsThatAreMissing(t *testing.T) {
	d, _, r := sealedDisk(5)
	r.seal()
	r.touch("u0", 1).Admit(2)
	r.touch("u1", 1).Admit(3)
	r.seal()
	d.cells = d.cells[:1]
	d.wants(t, "without the second cell", 10, 0)
	d.cells = nil
	d.wants(t, "without any", 10, 0)
	rec := NewRecovery("gw", 7)
	rec.Sealed = true
	for _, record := range d.records {
		if err := rec.Record(record); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rec.Finish(d.copy()); err != nil || rec.Unknown != 2 {
		t.Errorf("%d cells are missing, %v; want 2", rec.Unknown, err)
	}
	d.sealed = false
	if _, err := d.copy().recover("gw", 7); !errors.Is(err, ErrRecord) {
		t.Errorf("without a secret: %v, want %v", err, ErrRecord)
	}
	runtime.KeepAlive(r)
}

// looked counts how often its counts are asked.
type looked struct {
	*fed
	n int
}

func (l *looked) Counts() (admitted, denied, own int64) {
	l.n++
	return l.fed.Counts()
}

// A seal looks into buckets that changed, and into none once nothing is recorded any more.
func TestASealLooksAtWhatChanged(t *testing.T) {
	d, j, r := sealedDisk(5)
	l := &looked{fed: r.of["u0"]}
	seal := func(what string, want int) {
		t.Helper()
		j.Seal(func(seal func(*bucket.Cell, Counter)) { seal(l.Cell(), l) })
		if l.n != want {
			t.Errorf("%s: it was looked at %d times, want %d", what, l.n, want)
		}
	}
	seal("new", 1)
	seal("idle", 1)
	l.Admit(1)
	seal("changed", 2)
	d.wants(t, "sealed", 6, 0)
	l.Refuse(1)
	seal("changed otherwise", 3)
	r.adopt(2, "q")
	seal("under another policy", 4)
	seal("idle again", 4)
	d.full = true
	l.Admit(1)
	seal("while the disk is found to be full", 5)
	l.Admit(1)
	seal("after a fault", 5)
	runtime.KeepAlive(r)
}
