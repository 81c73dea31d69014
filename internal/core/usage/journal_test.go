package usage

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// model is a ledger: reports by epoch, in order, each once.
type model struct {
	reports map[int64][]ledger.Report
}

func (m *model) copy() *model {
	c := &model{reports: make(map[int64][]ledger.Report)}
	for e, r := range m.reports {
		c.reports[e] = slices.Clone(r)
	}
	return c
}

func (m *model) settle(r ledger.Report) ledger.Receipt {
	have := m.reports[r.Epoch]
	next := int64(len(have)) + 1
	switch {
	case r.Seq > next:
		return ledger.Receipt{Status: ledger.Ahead, NextSeq: next}
	case r.Seq < next && have[r.Seq-1].Digest == r.Digest:
		return ledger.Receipt{Status: ledger.Already}
	case r.Seq < next || r.Check() != nil || next > 1 && have[next-2].Closed:
		return ledger.Receipt{Status: ledger.Fenced}
	}
	m.reports[r.Epoch] = append(have, r)
	return ledger.Receipt{Status: ledger.Settled, NextSeq: next + 1}
}

// drain settles an outbox whole.
func (m *model) drain(o *Outbox) error {
	for range 100 {
		o.FreezeRest()
		if o.Done() {
			if o.State().AsideReports > 0 {
				return errors.New("reports are aside")
			}
			return nil
		}
		sent := slices.Clone(o.Next(2, 1<<20))
		var receipts []ledger.Receipt
		for _, r := range sent {
			receipts = append(receipts, m.settle(r))
		}
		o.Receive(sent, receipts, o.State().Epoch+1)
	}
	return errors.New("it does not come to an end")
}

// units are those in reports, by tenant, attributes and plan; those billed are not in unsealed ones.
func (m *model) units() (all, billed map[string]int64, denied int64) {
	all, billed = make(map[string]int64), make(map[string]int64)
	for _, reports := range m.reports {
		for _, r := range reports {
			rows, _ := ledger.DecodeRows(r.Payload)
			for _, row := range rows {
				k := row.Tenant + " " + row.Attributes + " " + row.Plan
				all[k] += row.Admitted
				if !r.Unsealed {
					billed[k] += row.Admitted
				}
				denied += row.Denied
			}
		}
	}
	return all, billed, denied
}

// byUser adds up units by all but the plan.
func byUser(units map[string]int64) map[string]int64 {
	sum := make(map[string]int64)
	for k, n := range units {
		sum[k[:strings.LastIndex(k, " ")]] += n
	}
	return sum
}

// An agent is killed before and after every record, and between any two steps of its life: what is recovered and
// what was settled before is what it admitted, and of the request under way at most that. Recovering is
// itself killed everywhere, and done again. Where it is power that is lost, what was admitted before the last sync
// is there, and nothing that was not. Reservations come and go meanwhile: a kill bills what was used of each, and the
// next life knows it. Under a secret what is billed of it is what was sealed at least and what was admitted
// at most; the rest is in quarantine.
func TestACrashAnywhereLosesAndDoublesNothing(t *testing.T) {
	unraced.Only(t)
	for seed := range uint64(12) {
		crashEverywhere(t, seed, false)
		crashEverywhere(t, seed, true)
	}
}

func crashEverywhere(t *testing.T, seed uint64, sealed bool) {
	rng := rand.New(rand.NewPCG(seed, 1))
	d, m := &disk{sealed: sealed}, &model{reports: make(map[int64][]ledger.Report)}
	counted, flying := make(map[string]int64), make(map[string]int64)
	denied, crashes := int64(0), 0
	// Of power that is lost: what was counted, and in flight, at the last sync.
	power := rand.New(rand.NewPCG(seed, 2))
	safe, hung, safeDenied := make(map[string]int64), make(map[string]int64), int64(0)
	var open []*heldUnits
	hanging := make(map[string]int64) // units reserved since the last sync, or then, which pages of another age tell otherwise of
	sync := func() {
		d.sync()
		safe, hung, safeDenied = maps.Clone(counted), maps.Clone(flying), denied
		hanging = make(map[string]int64)
		for _, h := range open {
			hanging["a user="+h.user] += h.n + h.used
		}
	}
	sync()
	vouched := make(map[string]int64) // what was counted at the last seal, of each user
	plan, turning := "p", false
	check := func(where string, m *model) {
		got, billed, gotDenied := m.units()
		counted := maps.Clone(counted)
		for _, h := range open {
			counted["a user="+h.user+" "+plan] += h.used
		}
		flying := flying
		if turning { // what is used of a reservation is of the plan before or after
			got, counted, flying, billed = byUser(got), byUser(counted), byUser(flying), byUser(billed)
			for _, units := range []map[string]int64{got, counted, flying, billed} {
				for k, n := range maps.Clone(units) {
					units[k+" p"] = n
				}
			}
		}
		for k := range 8 {
			k := fmt.Sprintf("a user=u%d %c", k/2, "pq"[k%2])
			if n := got[k]; n < counted[k] || n > counted[k]+flying[k] {
				t.Fatalf("seed %d, %s: the ledger has %d units of %s: %d were admitted, %d are under way", seed, where, n, k, counted[k], flying[k])
			}
			if n := billed[k]; sealed && n > counted[k] {
				t.Fatalf("seed %d, %s: %d units of %s are billed: %d were admitted", seed, where, n, k, counted[k])
			}
		}
		of := byUser(billed)
		for k, n := range vouched {
			if of[k] < n {
				t.Fatalf("seed %d, %s: %d units of %s are billed: %d were sealed", seed, where, of[k], k, n)
			}
		}
		if gotDenied < denied || gotDenied > denied+1 {
			t.Fatalf("seed %d, %s: the ledger has %d denied, %d were", seed, where, gotDenied, denied)
		}
	}
	d.stop = func(where string) {
		crashes++
		files, settled := d.copy(), m.copy()
		// The recovery is killed as well, after each of its records, and done again.
		files.stop = func(string) {
			again, ledger := files.copy(), settled.copy()
			o, err := again.recover("gw", 7)
			if err == nil {
				err = ledger.drain(o)
			}
			if err != nil {
				t.Fatalf("seed %d, %s, recovering: %v", seed, where, err)
			}
			check(where+", recovering", ledger)
		}
		knows(t, where, files, open)
		o, err := files.recover("gw", 7)
		if err == nil {
			err = settled.drain(o)
		}
		if err != nil {
			t.Fatalf("seed %d, %s: %v", seed, where, err)
		}
		check(where, settled)

		dark := m.copy()
		if o, err = d.lose(power).recover("gw", 7); err == nil {
			err = dark.drain(o)
		}
		if err != nil {
			t.Fatalf("seed %d, power lost %s: %v", seed, where, err)
		}
		// That the plan changed since the last sync may be lost as well.
		units, billed, gotDenied := dark.units()
		got, counted, flying := byUser(units), byUser(counted), byUser(flying)
		for k, n := range byUser(billed) {
			if sealed && n > counted[k] {
				t.Fatalf("seed %d, power lost %s: %d units of %s are billed: %d were admitted", seed, where, n, k, counted[k])
			}
		}
		for k, n := range got {
			if n > counted[k]+flying[k]+byUser(hung)[k]+2*hanging[k] {
				t.Fatalf("seed %d, power lost %s: the ledger has %d units of %s: %d were admitted, %d are under way, %d were at the last sync", seed, where, n, k, counted[k], flying[k], byUser(hung)[k])
			}
		}
		for k, n := range byUser(safe) {
			if got[k] < n-hanging[k] {
				t.Fatalf("seed %d, power lost %s: the ledger has %d units of %s: %d were admitted before the last sync", seed, where, got[k], k, n)
			}
		}
		if gotDenied < safeDenied || gotDenied > denied+1 {
			t.Fatalf("seed %d, power lost %s: the ledger has %d denied: %d were, %d of them before the last sync", seed, where, gotDenied, denied, safeDenied)
		}
		if power.IntN(8) == 0 {
			sync()
		}
	}
	j := NewJournal(d)
	o := NewOutbox("gw", 7)
	o.Keep(j)
	r := bucketsOf(j)
	slot := int64(300)
	j.Slot(slot)
	now, version := int64(1_000_000), int64(1)
	var anew []func() error // a log that is made anew
	collect := func() {
		now += 1000
		r.collect(&o.Usage, slot, now)
		j.Flush()
	}
	for range 120 {
		k := fmt.Sprintf("u%d", rng.IntN(4))
		key := "a user=" + k + " " + plan
		if len(anew) > 0 && rng.IntN(4) == 0 { // the disk has the log that was made anew
			if err := anew[0](); err != nil {
				t.Fatal(err)
			}
			anew = nil
		}
		if sealed && rng.IntN(4) == 0 {
			r.seal()
			vouched = byUser(counted)
		}
		switch rng.IntN(16) {
		case 12: // a request reserves
			h := &heldUnits{user: k, n: 1 + rng.Int64N(3), bucket: r.touch(k, now)}
			h.reserve(j, int64(len(open)+crashes), now, func() { flying[key], hanging["a user="+k] = h.n, hanging["a user="+k]+h.n }, d.stop)
			flying[key] = 0
			if h.bucket != nil {
				open = append(open, h)
			}
		case 13, 14: // it says what it has used, or takes more
			if len(open) > 0 {
				h := open[rng.IntN(len(open))]
				hanging["a user="+h.user] += 4
				h.use(h.used+rng.Int64N(3), Open)
				d.stop("after some was used")
			}
		case 15: // it ends
			if len(open) > 0 {
				i := rng.IntN(len(open))
				h := open[i]
				to := h.used
				if rng.IntN(2) == 0 {
					to = rng.Int64N(6)
				}
				hanging["a user="+h.user] += 8
				h.use(to, Committed)
				d.stop("after a reservation was committed")
				h.bucket.Settle(h.n, to, 0, h.stake)
				counted["a user="+h.user+" "+plan] += to
				open = slices.Delete(open, i, i+1)
				d.stop("after a reservation was settled")
				as := *h.of
				as.Totals, as.State, as.Ended = []int64{0, to}, Committed, now
				h.at.End(&as)
			}
		case 0:
			collect()
		case 1:
			collect()
			slot += 300
			j.Slot(slot)
		case 2:
			collect()
			o.Freeze(now/1000, false)
			if len(anew) == 0 && rng.IntN(2) == 0 {
				j.mu.Lock()
				if put, err := j.rotateLocked(o); err != nil {
					t.Fatal(err)
				} else if put != nil {
					anew = append(anew, put)
				}
				j.mu.Unlock()
			}
		case 3, 4: // what was said of reports comes, or is lost
			sent := slices.Clone(o.Next(2, 1<<20))
			sync() // what is sent is on the disk
			var receipts []ledger.Receipt
			for _, f := range sent {
				receipts = append(receipts, m.settle(f))
				d.stop("after a report was stored")
			}
			if rng.IntN(3) > 0 {
				o.Receive(sent, receipts, o.State().Epoch+1)
			}
		case 5:
			collect()
			version++
			if plan = "q"; version%2 == 1 {
				plan = "p"
			}
			turning = true
			r.adopt(version, plan)
			turning = false
		default:
			e := r.touch(k, now)
			n := 1 + rng.Int64N(3)*rng.Int64N(2)
			flying[key] = n
			e.Hold(n)
			d.stop("after a request announced itself")
			if e.Ask(now, 0, false, false); e.State(now).Tokens < n {
				g := lease.Grant{Number: e.Renew(now, false).Number, Tokens: 4, TTL: 10_000_000, DenyFor: 10}
				e.Apply(now, g)
			}
			ok := e.Take(n)
			d.stop("after a request took")
			if sealed && rng.IntN(2) == 0 {
				r.seal() // what it may yet put back is not sealed
			}
			switch {
			case !ok:
				flying[key] = 0
				e.Refuse(n)
				denied += n
			case rng.IntN(4) == 0:
				e.PutBack(n)
				flying[key] = 0
			default:
				counted[key] += n
				flying[key] = 0
			}
			d.stop("after a request was decided")
			e.Release(n)
		}
		d.stop("between two steps")
	}
	d.stop = func(string) {} // for cells that are given back once the registry is garbage, booked or not
	runtime.KeepAlive(r)
	if crashes < 300 {
		t.Errorf("seed %d: only %d crashes", seed, crashes)
	}
	if len(counted) < 6 {
		t.Errorf("seed %d: %v were counted, want most users under both plans", seed, counted)
	}
}

// heldUnits is a reservation of these tests: of a cost that the policy names, beside requests.
type heldUnits struct {
	user    string
	n, used int64
	bucket  *fed
	of      *Reservation
	at      *Reserved
	stake   *bucket.Stake
}

// reserve takes the units and records them. It leaves no bucket where there is too little.
func (h *heldUnits) reserve(j *Journal, number, now int64, flies func(), stop func(string)) {
	flies()
	h.bucket.Hold(h.n)
	g := lease.Grant{Number: h.bucket.Renew(now, false).Number, Tokens: 4, TTL: 10_000_000}
	h.bucket.Apply(now, g)
	if !h.bucket.Take(h.n) {
		h.bucket.Release(h.n)
		h.bucket = nil
		return
	}
	stop("after units to be reserved were taken")
	h.bucket.Reserve(h.n, 0)
	h.of = &Reservation{ReservationID: ReservationID{7, number}, Costs: []string{"tokens"}, Totals: []int64{0, 0}}
	var stakes []*bucket.Stake
	h.at, stakes = j.Reserve(h.of, []Stakes{{Cell: h.bucket.Cell()}})
	h.stake = stakes[0]
	stop("after a reservation was recorded")
	h.stake.Reserve(h.n)
	h.use(0, Open)
	stop("after a reservation was opened")
}

func (h *heldUnits) use(n int64, state ReservationState) {
	h.stake.Use(h.at.Next(), n)
	h.at.Switch(state, []int64{0, n}, false, 0)
	h.used = n
}

// knows checks what the next life knows of open reservations.
func knows(t *testing.T, where string, d *disk, open []*heldUnits) {
	t.Helper()
	r := NewRecovery("gw", 7)
	for _, record := range d.records {
		if err := r.Record(record); err != nil {
			t.Fatal(err)
		}
	}
	r.lookAt(d)
	for _, h := range open {
		for _, k := range r.Reservations() {
			if k.ReservationID == h.of.ReservationID && (k.State != Open && k.State != Committed || k.Totals[1] != h.used) {
				t.Fatalf("%s: the next life knows %+v, want an open one that used %d", where, k, h.used)
			}
		}
	}
}

// A report that the ledger kept aside is not sent again after a crash, and what was behind it goes on under
// the epoch that it went on under.
func TestARejectedReportStaysRejected(t *testing.T) {
	d := &disk{stop: func(string) {}}
	j := NewJournal(d)
	o := NewOutbox("gw", 7)
	o.Keep(j)
	r := bucketsOf(j)
	for i, user := range []string{"u0", "u1"} {
		e := r.touch(user, 1)
		e.Admit(3 + int64(i))
		o.Usage.Collect(e, 300, 1)
		o.Freeze(1, false)
	}
	o.Receive(o.Next(2, 1<<20), []ledger.Receipt{{Status: ledger.Rejected}, {Status: ledger.Fenced}}, 9)
	back, err := d.recover("gw", 7)
	if err != nil {
		t.Fatal(err)
	}
	sent := back.Next(9, 1<<20)
	if s := back.State(); len(sent) != 1 || sent[0].Epoch != 9 || sent[0].Seq != 1 || sent[0].After != 4 || !sent[0].Closed || s.AsideUnits != 3 {
		t.Errorf("%+v with %+v, want one report of 4 units under epoch 9, and 3 units aside", s, sent)
	}
}

// A log that cannot be written is given up: nothing is recorded any more, and everything goes on.
func TestAJournalThatCannotBeWritten(t *testing.T) {
	d := &disk{stop: func(string) {}}
	j := NewJournal(d)
	o := NewOutbox("gw", 7)
	o.Keep(j)
	r := bucketsOf(j)
	touch := func(user string) *fed { return r.touch(user, 1) }
	if touch("u0").Cell() == nil {
		t.Fatal("a bucket that feeds the ledger is not in the journal")
	}
	d.full = true
	e := touch("u1")
	if e.Cell() != nil || j.Fault() == nil {
		t.Errorf("a bucket is in a journal that takes no record of it; fault %v", j.Fault())
	}
	e.Admit(3)
	o.Usage.Collect(e, 300, 1)
	o.Freeze(1, true)
	if s := o.State(); s.Units != 3 {
		t.Errorf("%d units wait, want 3", s.Units)
	}
}

// A cell is given back and used by another, and the machine loses power: the disk has the other's counts, and not
// the record that says whose they are. Nobody is billed for them: whose cell it was is no more.
func TestACellThatWasGivenBackBillsNobody(t *testing.T) {
	d := &disk{stop: func(string) {}}
	j := NewJournal(d)
	o := NewOutbox("gw", 7)
	o.Keep(j)
	r := bucketsOf(j)
	func() { // nothing keeps the bucket after this
		e := r.touch("u0", 1)
		e.Admit(3)
		o.Usage.Collect(e, 300, 1)
		r.drop(t, &o.Usage, "u0")
	}()
	for given, until := false, time.Now().Add(10*time.Second); !given; {
		if time.Now().After(until) {
			t.Fatal("the cell was not given back")
		}
		runtime.GC()
		j.mu.Lock()
		given = len(j.feeds) == 0
		j.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	counters(d.cells[0])[4].Store(50) // in use, by another
	counters(d.cells[0])[5].Store(50)
	counters(d.cells[0])[3].Store(5)
	d.oneLine(t, 3, 0)
}

// A life that was killed before it counted anything ends with a report that says so, for the server may know it as a holder of
// leases; one that never had a bucket leaves nothing.
func TestALifeThatCountedNothingEnds(t *testing.T) {
	for _, leased := range []bool{false, true} {
		d := &disk{stop: func(string) {}}
		j := NewJournal(d)
		j.Slot(300)
		r := bucketsOf(j)
		if leased {
			r.touch("u0", 1)
		}
		for range 2 { // the recovery is killed as well
			o, err := d.recover("gw", 7)
			if err != nil {
				t.Fatal(err)
			}
			sent := o.Next(9, 1<<20)
			if !leased {
				if !o.Done() || len(sent) > 0 {
					t.Errorf("a life without a bucket leaves %d reports", len(sent))
				}
				continue
			}
			if len(sent) != 1 || !sent[0].Closed || sent[0].Seq != 1 || sent[0].After != 0 {
				t.Errorf("it leaves %+v, want its end", sent)
			}
		}
		runtime.KeepAlive(r)
	}
}

// Records of many buckets are many records, of a bounded size each.
func TestRecordsAreBounded(t *testing.T) {
	unraced.Only(t)
	const users, bookings = 6000, 30
	d := &disk{stop: func(string) {}, room: users}
	j := NewJournal(d)
	o := NewOutbox("gw", 7)
	o.Keep(j)
	r := bucketsOf(j)
	var all []*fed
	for i := range users {
		e := r.touch(fmt.Sprintf("%0240d", i), 1)
		all = append(all, e)
	}
	r.adopt(2, "p")
	for range bookings { // as many as a disk that has not answered for long leaves
		for _, e := range all {
			e.Admit(1)
			o.Usage.Collect(e, 300, 1)
		}
	}
	j.Flush()
	parts := map[byte]int{}
	for i, record := range d.records {
		if len(record) > 1<<19 {
			parts[record[0]]++
		}
		if len(record) > 1<<20+1024 {
			t.Errorf("record %d, of kind %q, has %d bytes, want a megabyte at most", i, record[:1], len(record))
		}
	}
	if parts[recordCells] == 0 || parts[recordBooked] == 0 {
		t.Errorf("the large records are %v: without those of cells and of bookings this proves little", parts)
	}
	back, err := d.recover("gw", 7)
	if err != nil {
		t.Fatal(err)
	}
	if n := back.State().Units; n != bookings*users {
		t.Errorf("%d units are recovered, want %d", n, bookings*users)
	}
	runtime.KeepAlive(r)
}

// Records that are none are refused, whatever they are.
func FuzzRecords(f *testing.F) {
	for _, kind := range "csbfrxopRLSEKF?" {
		f.Add([]byte{byte(kind), 2, 4, 6, 8, 10})
	}
	f.Fuzz(func(_ *testing.T, record []byte) {
		r := NewRecovery("gw", 1)
		_ = r.Record(record)
	})
}

// A log that goes on from one that was put away says how far that was acknowledged, and what follows is as ever.
func TestAHistoryKnowsWhatWasPutAway(t *testing.T) {
	d, e := &disk{stop: func(string) {}}, ledger.Epoch{Agent: "gw", Epoch: 7}
	o, j := NewOutbox(e.Agent, e.Epoch), NewJournal(d)
	o.Keep(j)
	report := func() ledger.Report {
		o.Usage.add(ledger.Row{Tenant: "acme", Limit: "requests", Meter: "requests"}, counts{admitted: 10})
		o.Freeze(0, false)
		return o.reports[len(o.reports)-1]
	}
	acknowledge := func(r ledger.Report) {
		o.Receive([]ledger.Report{r}, []ledger.Receipt{{Status: ledger.Settled, NextSeq: r.Seq + 1}}, 8)
	}
	acknowledge(report())
	acknowledge(report())
	waits := report()
	j.mu.Lock()
	put, err := j.rotateLocked(o)
	j.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	acknowledge(waits)
	var said []string
	h := NewHistory(e.Agent, e.Epoch, func(r ledger.Report) { said = append(said, fmt.Sprint("report ", r.Seq, " to ", r.After)) },
		func(of ledger.Epoch, seq, total int64) {
			said = append(said, fmt.Sprint(of, " through ", seq, " of ", total))
		})
	for _, record := range d.records {
		if err := h.Record(record); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{fmt.Sprint(e, " through 2 of 20"), "report 3 to 30"}; !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}

// An epoch that goes on from another says so for as long as its first report waits, in a log that was made anew as well, and to
// whoever sends it again.
func TestAnOriginOutlivesItsLog(t *testing.T) {
	d := &disk{stop: func(string) {}}
	o, j := NewOutbox("gw", 7), NewJournal(d)
	o.Keep(j)
	for range 2 {
		o.Usage.add(ledger.Row{Tenant: "acme", Limit: "requests", Meter: "requests"}, counts{admitted: 10})
		o.Freeze(0, false)
	}
	o.Receive(slices.Clone(o.Next(2, 1<<20)), []ledger.Receipt{{Status: ledger.Settled, NextSeq: 2}, {Status: ledger.Rejected, NextSeq: 2}}, 8)
	o.Usage.add(ledger.Row{Tenant: "acme", Limit: "requests", Meter: "requests"}, counts{admitted: 10})
	o.Freeze(0, false)
	want := ledger.Origin{Epoch: 7, Total: 10}
	if got := o.reports[0].Origin; got != want {
		t.Fatalf("it goes on from %+v, want %+v", got, want)
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
	o.Receive(slices.Clone(o.Next(1, 1<<20)), []ledger.Receipt{{Status: ledger.Settled, NextSeq: 2}}, 9)
	r, again := NewRecovery("gw", 7), []ledger.Origin(nil)
	h := NewHistory("gw", 7, func(r ledger.Report) { again = append(again, r.Origin) }, nil)
	for i, record := range d.records {
		if err := errors.Join(r.Record(record), h.Record(record)); err != nil {
			t.Fatal(err)
		}
		if i == len(d.records)-2 && r.outbox.reports[0].Origin != want {
			t.Errorf("recovered it goes on from %+v, want %+v", r.outbox.reports[0].Origin, want)
		}
	}
	if !slices.Equal(again, []ledger.Origin{want}) {
		t.Errorf("sent again it goes on from %+v, want %+v", again, want)
	}
}
