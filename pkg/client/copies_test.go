//go:build linux

package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// diverged is a life of which there are three journals that say different things: a copy taken early, one taken later, and
// its process, which lives. A ledger that goes back by a report, and cannot be asked how far it is, has all of them go on.
type diverged struct {
	early, late   string
	before        int64 // that the ledger keeps when it goes back
	forgotten     int64
	first, second int64 // that wait in both copies, and in the later one only
	restore       func(name string)
	live          *Client
	line          *line
}

// line is what a process has to its server. It can be cut.
type line struct {
	mu   sync.Mutex
	cut  bool
	conn net.Conn
	dial func(context.Context, string) (net.Conn, error)
}

func (l *line) open(ctx context.Context, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errDown
	}
	conn, err := l.dial(ctx, addr)
	l.conn = conn
	return conn, err
}

func (l *line) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; cut {
		_ = l.conn.Close()
	}
}

func diverge(t *testing.T, s *fake) (d diverged) {
	t.Helper()
	s.set(func(f *fake) { f.twins = true })
	dir := t.TempDir()
	d.line = &line{dial: s.dial}
	c := dial(t, s, WithJournal(dir), WithDialer(d.line.open))
	d.before = drive(c, 1, 10, tenant("a"))
	time.Sleep(11 * time.Second)
	d.restore = s.backup()
	d.forgotten = drive(c, 1, 30, tenant("a"))
	time.Sleep(11 * time.Second)
	s.set(func(f *fake) { f.ledgerOff = true })
	d.first = drive(c, 1, 80, tenant("a"))
	d.early = taken(t, dir)
	d.second = drive(c, 1, 160, tenant("a"))
	time.Sleep(11 * time.Second)
	d.late, d.live = taken(t, dir), c
	return d
}

// Copies of a journal that say different things, and a ledger that has forgotten what they follow: whoever goes on from there
// first has the units, and none is settled twice, whichever copy can still send again what was forgotten.
func TestCopiesThatDifferSettleOnce(t *testing.T) {
	early := func(d *diverged) string { return d.early }
	late := func(d *diverged) string { return d.late }
	for _, c := range []struct {
		first, second func(*diverged) string
		mute          [2]bool // the ledger cannot be asked how far it is
		want          func(d diverged) int64
	}{
		{late, early, [2]bool{true, false}, func(d diverged) int64 { return d.before + d.forgotten + d.first + d.second }},
		{late, early, [2]bool{true, true}, func(d diverged) int64 { return d.before + d.first + d.second }},
		{late, early, [2]bool{false, false}, func(d diverged) int64 { return d.before + d.forgotten + d.first + d.second }},
		{early, late, [2]bool{true, false}, func(d diverged) int64 { return d.before + d.forgotten + d.first }},
		{early, late, [2]bool{true, true}, func(d diverged) int64 { return d.before + d.first }},
		{early, late, [2]bool{false, true}, func(d diverged) int64 { return d.before + d.forgotten + d.first }},
	} {
		bubble(t, metered(), func(t *testing.T, s *fake) {
			d := diverge(t, s)
			end(t, d.live)
			s.set(func(f *fake) { f.ledgerOff = false })
			d.restore("")
			aside := int64(0)
			name := "first"
			for i, dir := range []string{c.first(&d), c.second(&d)} {
				s.set(func(f *fake) { f.older = c.mute[i] })
				r := recoverAll(t, s, dir)
				if len(r.Lives) != 1 {
					t.Fatalf("%+v, want one life", r)
				}
				aside += r.Lives[0].Aside
				if i == 0 && aside > 0 {
					t.Errorf("the first copy has %d units aside", aside)
				}
				name += fmt.Sprint(" ", r.Lives[0].Settled)
			}
			if want := c.want(d); s.billed(nil) != want || aside == 0 {
				t.Errorf("%s: the ledger has %d units, want %d; %d are aside", name, s.billed(nil), want, aside)
			}
		})
	}
}

// A process that lives goes on from what its ledger has forgotten, and an early copy of its journal is recovered elsewhere:
// nothing is settled twice, whichever is first.
func TestACopyOfALivingJournalSettlesOnce(t *testing.T) {
	for _, mute := range []bool{false, true} {
		for _, first := range []string{"process", "copy"} {
			t.Run(fmt.Sprint(first, " first, mute=", mute), func(t *testing.T) {
				bubble(t, metered(), func(t *testing.T, s *fake) {
					d := diverge(t, s)
					d.restore("")
					s.set(func(f *fake) { f.older = true })
					copied := func() int64 {
						s.set(func(f *fake) { f.older = mute })
						return recoverAll(t, s, d.early).Lives[0].Aside
					}
					want, aside := d.before+d.first, int64(0)
					if first == "copy" {
						d.line.set(true) // else it may try again while the copy is read
						s.set(func(f *fake) { f.ledgerOff = false })
						aside = copied()
						s.set(func(f *fake) { f.older = true })
						d.line.set(false)
						if time.Sleep(time.Minute); aside != 0 {
							t.Errorf("%d units of the copy are aside", aside)
						}
						aside = d.live.Stats().UnitsAside
					} else {
						s.set(func(f *fake) { f.ledgerOff = false })
						time.Sleep(time.Minute)
						aside, want = copied(), want+d.second
					}
					if !mute {
						want += d.forgotten
					}
					if got := s.billed(nil); got != want || aside == 0 {
						t.Errorf("the ledger has %d units, want %d; %d are aside", got, want, aside)
					}
					_ = d.live.Close(t.Context()) // what is aside is an error
				})
			})
		}
	}
}

// An epoch that the ledger rejected goes on once, by whichever copy is first.
func TestACopyOfARejectedReportSettlesOnce(t *testing.T) {
	bubble(t, metered(), func(t *testing.T, s *fake) {
		s.set(func(f *fake) { f.twins = true })
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		before := drive(c, 1, 10, tenant("a"))
		time.Sleep(11 * time.Second)
		s.set(func(f *fake) { f.ledgerOff = true })
		drive(c, 1, 20, tenant("a"))
		time.Sleep(11 * time.Second)
		behind := drive(c, 1, 40, tenant("a"))
		time.Sleep(11 * time.Second)
		dead := taken(t, dir)
		s.set(func(f *fake) { f.ledgerOff, f.verdict = false, ledger.Rejected })
		time.Sleep(time.Minute)
		wantBilled(t, s, before+behind, "with a report rejected")
		s.set(func(f *fake) { f.verdict = ledger.Rejected }) // it is answered so again
		r := recoverAll(t, s, dead)
		wantBilled(t, s, before+behind, "with the copy recovered")
		if len(r.Lives) != 1 || r.Lives[0].Aside != 60 {
			t.Errorf("%+v, want all of the copy aside", r)
		}
		_ = c.Close(t.Context()) // what is aside is an error
	})
}
