//go:build linux

package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func recoverAll(t *testing.T, s *fake, dir string) Recovered {
	t.Helper()
	r, err := Recover(t.Context(), "passthrough:fake", dir, WithDialer(s.dial))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A process is killed at some time, with usage in every state: settled, sent and not acknowledged, booked under
// an earlier slot, and only in its cells. The next start settles all of it first, and as its own
// epoch; the killed one's ends. Other copies of the same journal change nothing any more.
func TestTheNextStartSettlesWhatAKilledOneLeft(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		admitted := drive(c, 1, 10, tenant("a"))
		time.Sleep(11 * time.Second) // settled
		s.set(func(f *fake) { f.loseTell = 1 })
		admitted += drive(c, 1, 20, tenant("a"))
		time.Sleep(11 * time.Second) // settled, and the reply lost
		s.set(func(f *fake) { f.ledgerOff = true })
		admitted += drive(c, 1, 30, tenant("a"))
		time.Sleep(6 * time.Minute) // frozen, and booked under another slot
		admitted += drive(c, 1, 40, tenant("a"))
		if admitted != 100 {
			t.Fatalf("%d were admitted, want all 100", admitted)
		}
		killed := taken(t, dir)
		end(t, c)
		ended := taken(t, dir)
		s.set(func(f *fake) { f.ledgerOff = false })

		next, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(killed))
		if err != nil {
			t.Fatal(err)
		}
		if next.Agent() != "gw-1" {
			t.Errorf("it goes on as %s, want gw-1", next.Agent())
		}
		time.Sleep(time.Second)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted: %+v", got, admitted, s.allRows())
		}
		if st := next.Stats(); st.UnitsRecovered != 70 || st.UnitsToRecover != 0 || st.Epoch == c.session.Epoch() {
			t.Errorf("%+v, want 70 units recovered", st)
		}
		if slots := len(s.allRows()); slots < 2 {
			t.Errorf("all usage is under %d slots", slots)
		}
		admitted += drive(next, 1, 5, tenant("a"))
		shut(t, next)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
		}

		s.set(func(f *fake) { f.twins = true })
		// A copy of what was settled elsewhere meanwhile: the ledger does not take its last report.
		r := recoverAll(t, s, ended)
		if got := s.billed(nil); got != admitted {
			t.Errorf("after another copy was recovered the ledger has %d units, %d were admitted", got, admitted)
		}
		if len(r.Lives) != 1 || r.Lives[0].Aside == 0 {
			t.Errorf("%+v, want a life with units aside", r)
		}
		if r := recoverAll(t, s, killed); len(r.Lives) != 0 {
			t.Errorf("%+v is left of a life that was settled", r)
		}
	})
}

// What is sent is on the disk before: after a loss of power it must not be made anew, in other words under the same
// number. So it is of reports of a life that goes on, and of one that is settled by the next start.
func TestNothingIsSentThatPowerCouldTake(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		watch := func(c *Client) *atomic.Int64 {
			arrived := new(atomic.Int64)
			lives := c.session.Lives() // of the past, of which none is settled yet, too
			s.set(func(f *fake) {
				f.arrived = func(epoch int64) {
					n := arrived.Add(1)
					for _, l := range lives {
						if left := l.Unsynced(); left > 0 && l.Epoch == epoch {
							t.Errorf("report %d arrives, and %d records of life %d could yet be lost", n, left, l.Epoch)
						}
					}
				}
			})
			return arrived
		}
		c := dial(t, s, WithJournal(dir), WithReportInterval(1037*time.Millisecond)) // not when it syncs anyway
		arrived := watch(c)
		drive(c, 1, 100, tenant("a"))
		time.Sleep(10 * time.Second)
		if arrived.Load() < 3 {
			t.Errorf("%d reports arrived", arrived.Load())
		}
		s.set(func(f *fake) { f.arrived, f.ledgerOff = nil, true })
		drive(c, 1, 10, tenant("a"))
		killed := taken(t, dir)
		end(t, c)
		next, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(killed))
		if err != nil {
			t.Fatal(err)
		}
		arrived = watch(next)
		s.set(func(f *fake) { f.ledgerOff = false })
		time.Sleep(time.Minute)
		if st := next.Stats(); arrived.Load() == 0 || st.UnitsRecovered == 0 {
			t.Errorf("%d reports arrived, %+v", arrived.Load(), st)
		}
		s.set(func(f *fake) { f.arrived = nil })
		shut(t, next)
	})
}

// A dead host's journal is settled from elsewhere, once, whatever copies there are.
func TestRecover(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		s.set(func(f *fake) { f.ledgerOff = true })
		admitted := drive(c, 1, 30, tenant("a"))
		if _, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(dir)); !errors.Is(err, ErrJournal) {
			t.Errorf("a second client of the journal: %v, want %v", err, ErrJournal)
		}
		end(t, c)
		copies := []string{taken(t, dir), taken(t, dir)}
		if _, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(dir), WithAgent("gw-2")); !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), "gw-1") {
			t.Errorf("under another name: %v, want %v, and whose it is", err, ErrJournal)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if r, err := Recover(ctx, "passthrough:fake", dir, WithDialer(s.dial)); !errors.Is(err, ErrUnsettled) || len(r.Lives) != 1 || r.Lives[0].Settled != 0 {
			t.Errorf("%+v while the ledger is away: %v", r, err)
		}
		s.set(func(f *fake) { f.ledgerOff = false })
		for i, d := range append(copies, dir) {
			r := recoverAll(t, s, d)
			if len(r.Lives) != 1 || r.Lives[0].Settled != 30 || r.Lives[0].Aside != 0 || r.Lives[0].Agent != "gw-1" || len(r.Usage) != 1 || r.Usage[0].Tenant != "a" || r.Usage[0].Admitted != 30 {
				t.Errorf("copy %d: %+v, want 30 units of tenant a settled", i, r)
			}
			if got := s.billed(nil); got != admitted {
				t.Errorf("copy %d: the ledger has %d units, %d were admitted", i, got, admitted)
			}
		}
		if r := recoverAll(t, s, dir); len(r.Lives) != 0 {
			t.Errorf("%+v, want nothing left", r)
		}
	})
}

// A journal of which a life cannot be read stops the start, and touches nothing.
func TestADamagedJournalStopsTheStart(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		s.set(func(f *fake) { f.ledgerOff = true })
		drive(c, 1, 30, tenant("a"))
		end(t, c)
		cells, err := filepath.Glob(filepath.Join(dir, "*.cells.0"))
		if err != nil || len(cells) != 1 {
			t.Fatalf("%v: %v", cells, err)
		}
		if err := os.Truncate(cells[0], 100); err != nil {
			t.Fatal(err)
		}
		if _, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(dir), WithAgent("gw-1")); !errors.Is(err, ErrJournal) {
			t.Errorf("got %v, want %v", err, ErrJournal)
		}
		s.set(func(f *fake) { f.ledgerOff = false })
		if _, err := Recover(t.Context(), "passthrough:fake", dir, WithDialer(s.dial)); !errors.Is(err, ErrJournal) {
			t.Errorf("got %v, want %v", err, ErrJournal)
		}
		if got := s.billed(nil); got != 0 {
			t.Errorf("%d units were settled", got)
		}
	})
}

// A client that ends before its first look at the ledger is back waits for that look, and does nothing else meanwhile.
func TestAClientEndsWhileALookIsUnderWay(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		c := dial(t, s, WithJournal(t.TempDir()))
		admitted := drive(c, 1, 10, tenant("a"))
		shut(t, c) // its first report, the answer to which names the ledger, is its last
		wantBilled(t, s, admitted, "at the end")
	})
}
