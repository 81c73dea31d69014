//go:build linux

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// reopened is the next client of a journal.
func reopened(t *testing.T, s *fake, dir string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(dir), WithReportInterval(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustKnow returns a reservation that an earlier client made.
func mustKnow(t *testing.T, c *Client, id ReservationID, used int64) *Reservation {
	t.Helper()
	r, ok := c.Reservation(id)
	if !ok {
		t.Fatalf("reservation %+v is not known", id)
	}
	if n, _ := r.Totals(); n != used {
		t.Errorf("of %+v %d were used, want %d", id, n, used)
	}
	return r
}

// A process is killed while reservations are open: what was used of each is billed, also of a tenant below another, and
// the rest is not. The next starts know them, after a second kill and a graceful end as well: a late Commit books what
// is above, once.
func TestReservationsOutliveTheirProcess(t *testing.T) {
	for _, how := range []string{"killed", "closed"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, plans(1, hourly("requests", 10_000)), func(t *testing.T, s *fake) {
				s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
				of := func(id string) int64 { return s.billed(func(r ledger.Row) bool { return r.Tenant == id }) }
				dir := t.TempDir()
				c := dial(t, s, WithJournal(dir))
				next := func() {
					t.Helper()
					if how == "closed" {
						shut(t, c)
						c = reopened(t, s, dir)
						return
					}
					dir = taken(t, dir)
					end(t, c)
					s.set(func(f *fake) { f.ledgerOff = false })
					c = reopened(t, s, dir)
				}
				reserve := func(n int64, id string) *Reservation {
					r, d := c.Reserve(t.Context(), n, tenant(id))
					if r == nil {
						t.Fatalf("%+v", d)
					}
					return r
				}
				admitted := drive(c, 1, 10, tenant("a"))
				untouched, used, more, below, done := reserve(100, "a"), reserve(100, "a"), reserve(10, "a"), reserve(50, "a/b"), reserve(60, "a/b")
				for r, n := range map[*Reservation]int64{used: 30, more: 25, below: 20} {
					if err := r.Use(n); err != nil {
						t.Error(err)
					}
				}
				if d := used.Extend(t.Context(), 40); !d.Allowed {
					t.Errorf("%+v", d)
				}
				if err := done.Commit(33); err != nil {
					t.Error(err)
				}
				if how == "killed" {
					s.set(func(f *fake) { f.ledgerOff = true })
				}
				next()
				time.Sleep(time.Second)
				if a, b := of("a"), of("a/b"); a != admitted+30+25 || b != 20+33 {
					t.Errorf("a has %d units and a/b %d, want %d and 53", a, b, admitted+55)
				}
				if err := mustKnow(t, c, done.ID(), 33).Commit(33); err != nil {
					t.Errorf("the same cost after the end: %v", err)
				}
				if r := mustKnow(t, c, used.ID(), 30); r.Commit(70) != nil || !r.Late() {
					t.Errorf("committed late: %v", r.Late())
				}
				if err := mustKnow(t, c, below.ID(), 20).Commit(90); err != nil {
					t.Error(err)
				}
				if how == "killed" {
					time.Sleep(time.Second)
					s.set(func(f *fake) { f.ledgerOff = true })
				}
				last := reserve(5, "a")
				next()
				time.Sleep(time.Second)
				if a, b := of("a"), of("a/b"); a != admitted+70+25 || b != 90+33 {
					t.Errorf("a has %d units and a/b %d, want %d and 123", a, b, admitted+95)
				}
				if r := mustKnow(t, c, used.ID(), 70); r.Commit(70) != nil || r.Commit(71) == nil || !r.Late() {
					t.Errorf("it was committed with 70, late: %v", r.Late())
				}
				for r, n := range map[*Reservation]int64{untouched: 0, more: 25, last: 0} {
					if err := mustKnow(t, c, r.ID(), n).Commit(40); err != nil {
						t.Error(err)
					}
				}
				shut(t, c)
				if a, b := of("a"), of("a/b"); a != admitted+70+40+40+40 || b != 90+33 {
					t.Errorf("a has %d units and a/b %d, want %d and 123", a, b, admitted+190)
				}
			})
		})
	}
}

// Of several costs a kill bills what each limit makes of those that were used, and a late Commit what it makes of the
// whole, rounded once.
func TestCostsOutliveTheirProcess(t *testing.T) {
	p := costly(1000, 10_000, 100_000, 10_000)
	p.Costs = []string{"bytes", "frames", "in", "images", "out"}
	bubble(t, p, func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		check := func(where string, want map[string]int64) {
			t.Helper()
			for meter, n := range want {
				if got := s.billed(func(r ledger.Row) bool { return r.Meter == meter }); got != n {
					t.Errorf("%s: %d units of %s are billed, want %d", where, got, meter, n)
				}
			}
		}
		r, d := c.ReserveRequest(t.Context(), costing(1, []Cost{{"in", 100}}, []Attribute{tenant("a"), model("small")}))
		if r == nil {
			t.Fatalf("%+v", d)
		}
		for _, out := range []int64{3, 11} {
			if err := r.Use(1, Cost{"in", 101}, Cost{"out", out}, Cost{"bytes", 7}, Cost{"images", out}); err != nil {
				t.Error(err)
			}
		}
		s.set(func(f *fake) { f.ledgerOff = true })
		killed := taken(t, dir)
		end(t, c)
		s.set(func(f *fake) { f.ledgerOff = false })
		c = reopened(t, s, killed)
		time.Sleep(time.Second)
		check("killed", map[string]int64{"requests": 1, "out": 11, "sum": 151, "model": 22}) // ⌈101 + 49.5⌉, ⌈15.15 + 6.6⌉
		back, _ := c.Reservation(r.ID())
		n, costs := back.Totals()
		if want := []Cost{{"bytes", 7}, {"in", 101}, {"images", 11}, {"out", 11}}; n != 1 || !slices.Equal(costs, want) {
			t.Errorf("%d and %v are known as used, want 1 and %v", n, costs, want)
		}
		for range 2 {
			if err := back.Commit(1, Cost{"out", 13}, Cost{"in", 101}); err != nil || !back.Late() {
				t.Errorf("committed late: %v", err)
			}
		}
		shut(t, c)
		check("committed", map[string]int64{"requests": 1, "out": 13, "sum": 160, "model": 23}) // ⌈101 + 58.5⌉, ⌈15.15 + 7.8⌉
	})
}

// found is what a recovery of a copy of the journal would settle, by tenant, and what it knows of a reservation.
func found(t *testing.T, dir string, id ReservationID) (units map[string]int64, known usage.Reservation) {
	t.Helper()
	d, err := journal.Open(taken(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	lives, err := d.Lives()
	if err != nil || len(lives) != 1 {
		t.Fatal(lives, err)
	}
	recovery := usage.NewRecovery(lives[0].Agent, lives[0].Epoch)
	life, err := d.Resume(lives[0], recovery.Record)
	if err != nil {
		t.Fatal(err)
	}
	out, err := recovery.Finish(life)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := out.Lines()
	if err = errors.Join(err, life.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	units = make(map[string]int64)
	for _, l := range lines {
		units[l.Tenant+" "+l.Meter] = l.Admitted
	}
	for _, r := range recovery.Reservations() {
		if r.ReservationID == usage.ReservationID(id) {
			known = r
		}
	}
	return units, known
}

// A process is killed between any two steps of a Commit, in time or late, with what two limits have reserved: both bill
// what was used before, or both what is committed, and the next start knows which. At no step does a tenant's other
// usage change.
func TestAKillWithinACommit(t *testing.T) {
	other := hourly("other", 1000)
	for _, cost := range []int64{0, 20, 50, 90} {
		bubble(t, plans(1, hourly("requests", 1000), other), func(t *testing.T, s *fake) {
			dir := t.TempDir()
			c := dial(t, s, WithJournal(dir), WithReportInterval(time.Hour))
			s.set(func(f *fake) { f.ledgerOff = true }) // all is found in the journal
			admitted := drive(c, 1, 10, tenant("a"))
			r, _ := c.ReserveRequest(t.Context(), Request{Units: 50, Attributes: []Attribute{tenant("a")}, Expires: time.Minute})
			if err := r.Use(30); err != nil {
				t.Error(err)
			}
			check := func(where string, billed int64, state usage.ReservationState) {
				t.Helper()
				units, known := found(t, dir, r.ID())
				if units["a requests"] != admitted+billed || units["a other"] != admitted+billed || known.State != state || known.Totals[0] != billed {
					t.Errorf("cost %d, %s: %v, and %+v is known, want %d and state %d", cost, where, units, known, admitted+billed, state)
				}
			}
			check("before", 30, usage.Open)
			commit := func(totals, spent []int64, state usage.ReservationState) {
				r.say(state, totals, spent, time.Now().UnixMilli())
				check("said", totals[0], state)
				for i := range r.claims {
					c.spend(&r.claims[i], spent[i])
					check(fmt.Sprint("spent of ", i), totals[0], state)
				}
				r.claims = nil
				r.ended(time.Now())
				check("ended", totals[0], state)
			}
			spent, err := r.split(r.claims, []int64{cost})
			if err != nil || len(spent) != 2 {
				t.Fatal(spent, err)
			}
			commit([]int64{cost}, spent, usage.Committed)

			late, _ := c.ReserveRequest(t.Context(), Request{Units: 40, Attributes: []Attribute{tenant("a")}, Expires: time.Second})
			if err := late.Use(7); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			admitted += cost
			r = late
			check("expired", 7, usage.Expired)
			claims, err := r.charges([]int64{cost})
			if err != nil {
				t.Fatal(err)
			}
			spent = r.beginLate(claims)
			check("begun", 7, usage.Expired)
			r.late = true
			if billed := max(cost, 7); cost >= 7 {
				commit([]int64{billed}, spent, usage.Committed)
			}
			for i := range claims {
				claims[i].entry.Leave()
			}
			s.set(func(f *fake) { f.ledgerOff = false })
			shut(t, c)
		})
	}
}

// Under a secret what was used is in cells, which nobody sealed: after a kill it goes to quarantine. What a late Commit
// books above it is billed.
func TestWhatIsUsedIsUnsealedUnderASecret(t *testing.T) {
	secret := WithJournalSecret([]byte("0123456789abcdef"))
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir), secret)
		admitted := drive(c, 1, 10, tenant("a"))
		r, _ := c.Reserve(t.Context(), 100, tenant("a"))
		if err := r.Use(30); err != nil {
			t.Error(err)
		}
		time.Sleep(11 * time.Second) // settled and sealed
		s.set(func(f *fake) { f.ledgerOff = true })
		killed := taken(t, dir)
		end(t, c)
		s.set(func(f *fake) { f.ledgerOff = false })
		next, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(killed), secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := mustKnow(t, next, r.ID(), 30).Commit(75); err != nil {
			t.Error(err)
		}
		shut(t, next)
		if got := s.billed(nil); got != admitted+45 || s.unsealed != 30 {
			t.Errorf("%d units are billed and %d in quarantine, want %d and 30", got, s.unsealed, admitted+45)
		}
	})
}

// childEnv names the journal and the server of the process that TestReservationsOutliveKill9 starts.
const childEnv = "QUOTA_TEST_RESERVING"

// TestReservingChild is that process: workers that reserve, use, extend and commit until they are killed. Each call that
// returned is said.
func TestReservingChild(t *testing.T) {
	dir, target, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		t.Skip("it is started by another test")
	}
	c, err := Dial(t.Context(), target, WithJournal(dir), WithAgent("gw-1"), WithFirstWait(time.Minute), WithReportInterval(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), uint64(os.Getpid())))
			who := tenant([]string{"a", "a/b"}[worker%2])
			say := func(what string, id ReservationID, n int64) {
				fmt.Printf("%s %d %d %d\n", what, id.Epoch, id.Number, n)
			}
			for {
				r, d := c.Reserve(context.Background(), 1+rng.Int64N(50), who)
				if r == nil {
					t.Errorf("%+v", d)
					return
				}
				say("reserved", r.ID(), 0)
				used := int64(0)
				for range rng.IntN(5) {
					used += rng.Int64N(30)
					if r.Use(used) == nil {
						say("used", r.ID(), used)
					}
					r.Extend(context.Background(), 5)
				}
				if rng.IntN(3) > 0 && r.Commit(used+2) == nil {
					say("committed", r.ID(), used+2)
				}
			}
		})
	}
	all.Wait()
}

const workers = 6

// A process that reserves, uses, extends and commits is killed with SIGKILL at any instant. The next start has billed of
// each reservation what it was last told, and a late Commit makes it the whole cost: of requests under way at the kill
// alone there may be more.
func TestReservationsOutliveKill9(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		return
	}
	s := newFake(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1_000_000), Burst: 100_000_000, Meter: "requests"}))
	s.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "p", Revision: 1}
	s.tenants["a/b"] = limit.Tenant{ID: "a/b", Exists: true, Plan: "p", Parent: "a", Revision: 1}
	s.chunk = 1_000_000
	defer s.stop()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	quotav1.RegisterLeaseServiceServer(srv, s)
	go func() { _ = srv.Serve(lis) }()
	defer srv.Stop()
	dir := t.TempDir()
	told := make(map[ReservationID]int64)
	committed := make(map[ReservationID]bool)
	for kill := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestReservingChild$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), childEnv+"="+dir+" "+lis.Addr().String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for read := bufio.NewScanner(out); read.Scan(); {
			var what string
			var id ReservationID
			var n int64
			if k, _ := fmt.Sscanf(read.Text(), "%s %d %d %d", &what, &id.Epoch, &id.Number, &n); k < 4 {
				t.Logf("child: %s", read.Text())
				continue
			}
			told[id], committed[id] = n, committed[id] || what == "committed"
			if lines++; lines == 500+300*kill {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if lines < 500 {
			t.Fatalf("the child said %d lines", lines)
		}
	}
	c, err := Dial(t.Context(), lis.Addr().String(), WithJournal(dir), WithFirstWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var want, open int64
	var late []ReservationID
	c.reserved.mu.Lock()
	for id := range c.reserved.byID {
		late = append(late, id)
	}
	c.reserved.mu.Unlock()
	slices.SortFunc(late, func(a, b ReservationID) int { return int(a.Epoch - b.Epoch + a.Number - b.Number) })
	for id := range told {
		if _, ok := c.Reservation(id); !ok {
			t.Errorf("%+v is not known", id)
		}
	}
	for _, id := range late {
		r, _ := c.Reservation(id)
		n, _ := r.Totals()
		if n < told[id] || committed[id] && n != told[id] {
			t.Errorf("%+v has %d, and was told %d, committed %v", id, n, told[id], committed[id])
		}
		if r.state == 2 { // it was committed, whether or not that was told
			want += n
			continue
		}
		open++
		if err := r.Commit(n + 7); err != nil {
			t.Errorf("%+v committed late: %v", id, err)
		}
		want += n + 7
	}
	shut(t, c)
	t.Logf("%d reservations, %d of them open at a kill, %d units", len(late), open, want)
	// Of reservations and extensions under way, 55 units each at most, and of commits under way at the ancestor.
	if got := s.billed(nil); got < want || got > want+4*workers*100 {
		t.Errorf("the ledger has %d units, want %d, and %d more of calls under way at most", got, want, 4*workers*100)
	}
}
