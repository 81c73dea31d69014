package client

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

var (
	windowSeeds = flag.Int("window-seeds", 60, "histories of reservations across windows, of each kind")
	windowSeed  = flag.Int("window-seed", -1, "only this history, -window-seeds times")
)

// Reservations that end in the window that they began in, in the next one, or later, over two clients, beside requests that are denied by
// another limit, and by Wait for longer than a window. Whatever the history:
//
//   - A unit counts in the window that it was taken of, and in no other: a reservation in the one in which it was made, whenever it ends. What it
//     puts back can be spent again in that window, and is nobody's in a later one; what it costs beyond is of the window in which it ends.
//   - No window of a fixed limit admits more than its units and epsilon, beyond what single commits found nothing to pay with; and none of a sliding one more
//     than one besides, with what is reserved counted as of now.
//   - They can be had: of a fixed limit's last window, what is not used is there.
//   - The ledger has what was admitted and committed, to the unit, in the slot in which it was, and no count is negative.
//   - The loop sleeps: renewals are as many as there are reasons.
func TestReservationsAcrossWindows(t *testing.T) {
	kinds := map[string]limit.Limit{
		"fixed":    {Algorithm: limit.FixedWindow, Rate: limit.Rate{Per: 10 * time.Second}},
		"minute":   {Algorithm: limit.FixedWindow, Rate: limit.Rate{Per: time.Minute, Calendar: limit.Minute}},
		"calendar": {Algorithm: limit.FixedWindow, Rate: limit.Rate{Per: 24 * time.Hour, Calendar: limit.Day}, Zone: "Europe/Berlin"},
		"sliding":  {Algorithm: limit.SlidingWindow, Rate: limit.Rate{Per: 10 * time.Second}},
	}
	for name, l := range kinds {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(unraced.Some(*windowSeeds)) {
				if *windowSeed >= 0 {
					seed = uint64(*windowSeed)
				}
				synctest.Test(t, func(t *testing.T) { // which ends the test if it fails
					m := newWindowed(t, l, seed)
					defer func() {
						if t.Failed() {
							t.Logf("seed %d, %d units:\n%s", seed, m.l.Rate.Units, strings.Join(m.history, "\n"))
						}
					}()
					m.run()
				})
			}
		})
	}
}

// windowed is one history, and the plain model of it.
type windowed struct {
	t     *testing.T
	rng   *rand.Rand
	fake  *fake
	l     limit.Limit
	rule  *limit.Rule
	slot  time.Duration
	all   []*Client
	live  []*windowedReservation
	used  map[time.Time]int64 // by window's start: what counts in it
	spare map[time.Time]int64 // what was committed beyond a reservation, and found nothing to pay with
	rows  map[int64]int64     // by slot: what the ledger is to have
	over  bool

	history []string
}

// note keeps what happened, for who has to find out why.
func (m *windowed) note(format string, args ...any) {
	m.history = append(m.history, time.Now().UTC().Format("15:04:05.000000 ")+fmt.Sprintf(format, args...))
}

type windowedReservation struct {
	c      *Client
	r      *Reservation
	n      int64
	window time.Time
}

func newWindowed(t *testing.T, l limit.Limit, seed uint64) *windowed {
	m := &windowed{t: t, rng: rand.New(rand.NewPCG(seed, 31)), slot: 5 * time.Second, used: make(map[time.Time]int64), spare: make(map[time.Time]int64), rows: make(map[int64]int64)}
	l.Name, l.Meter, l.Rate.Units = "windowed", "units", 1+m.rng.Int64N([]int64{10, 60, 400}[m.rng.IntN(3)])
	m.over = m.rng.IntN(2) == 0
	gate := limit.Limit{Name: "gate", Rate: limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}, Burst: 3, By: []string{"user"}, Match: []limit.Match{{Attribute: "user", Patterns: []string{"*"}}}}
	if l.Rate.Calendar == limit.Day { // it is midnight in UTC
		time.Sleep(22*time.Hour + 59*time.Minute + 30*time.Second)
	}
	p := plans(1, l, gate)
	p.Slot = m.slot
	m.l = p.Plans[0].Limits[0]
	rule, err := limit.Compile(m.l)
	if err != nil {
		t.Fatal(err)
	}
	m.rule = rule
	m.fake = newFake(t, p)
	m.fake.leases = memstore.New()
	m.fake.delay = time.Duration(m.rng.IntN(5)) * time.Millisecond
	m.fake.tenants["a"] = limit.Tenant{ID: "a", Exists: true, Plan: "p", Revision: 1}
	for i := range 1 + m.rng.IntN(2) {
		time.Sleep(time.Second) // the fake ledger tells lives apart by their epochs alone
		m.all = append(m.all, dial(t, m.fake, WithAgent(fmt.Sprint("gw-", i)), WithReportInterval(2*time.Second), WithReservationTime(time.Hour)))
	}
	return m
}

func (m *windowed) window() time.Time {
	start, _ := m.rule.Window(time.Now())
	return start
}

func (m *windowed) book(n int64) {
	m.rows[time.Now().Truncate(m.slot).Unix()] += n
}

// sleep lets some time pass, and ends well within a slot and so within a window.
func (m *windowed) sleep() {
	now := time.Now()
	_, end := m.rule.Window(now)
	at := now.Add(time.Duration(m.rng.Int64N(int64(400 * time.Millisecond))))
	switch m.rng.IntN(8) {
	case 0:
		at = now.Add(time.Duration(m.rng.Int64N(int64(3 * time.Second))))
	case 1:
		if left := end.Sub(now); left < time.Hour {
			at = end.Add(time.Duration(m.rng.Int64N(int64(3*time.Second))) - 2*time.Second) // around the edge
		}
	}
	time.Sleep(max(at.Sub(now), 0))
	m.clear()
}

// clear waits until the edge of a slot is not near: calls take their time.
func (m *windowed) clear() {
	const near = 100 * time.Millisecond
	now := time.Now()
	if into := now.Sub(now.Truncate(m.slot)); into < near || into > m.slot-near {
		time.Sleep(2 * near)
	}
}

// tokens is what a client has of the bucket to pay with at once.
func (m *windowed) tokens(c *Client) (n int64) {
	c.reg.Each(func(e *agent.Entry) {
		if e.Limit() == "windowed" {
			n = max(e.State(c.reg.Now()).Tokens, 0)
		}
	})
	return n
}

func (m *windowed) allow(c *Client, n int64, attrs ...Attribute) bool {
	if !c.AllowN(m.t.Context(), n, append(attrs, tenant("a"))...).Allowed {
		return false
	}
	m.note("%s: allowed %d", c.cfg.session.Agent, n)
	m.used[m.window()] += n
	m.book(n)
	return true
}

func (m *windowed) reserve(c *Client, n int64, attrs ...Attribute) {
	if r, _ := c.Reserve(m.t.Context(), n, append(attrs, tenant("a"))...); r != nil {
		m.live = append(m.live, &windowedReservation{c, r, n, m.window()})
		m.note("%s: reserved %d", c.cfg.session.Agent, n)
		m.used[m.window()] += n
	}
}

func (m *windowed) end(i int) {
	v := m.live[i]
	m.live = slices.Delete(m.live, i, i+1)
	most := v.n
	if m.over {
		most += v.n / 2
	}
	cost := []int64{0, v.n, m.rng.Int64N(v.n + 1), m.rng.Int64N(most + 1), most}[m.rng.IntN(5)]
	m.note("%s: ends %d of %v at %d, with %d", v.c.cfg.session.Agent, v.n, v.window.UTC().Format("15:04:05"), cost, m.tokens(v.c))
	now := m.window()
	switch beyond := cost - v.n; {
	case beyond > 0:
		m.used[now] += beyond
		m.spare[now] += max(beyond-m.tokens(v.c), 0)
	case v.window.Equal(now), m.l.Algorithm == limit.SlidingWindow:
		m.used[v.window] += beyond
	}
	if m.l.Algorithm == limit.SlidingWindow && !v.window.Equal(now) {
		m.used[v.window] -= min(cost, v.n) // it counts when it is spent
		m.used[now] += min(cost, v.n)
	}
	m.book(cost)
	if err := v.r.Commit(cost); err != nil {
		m.t.Errorf("Commit: %v", err)
	}
}

func (m *windowed) check() {
	now := m.window()
	used, most := float64(m.used[now]), 1.05*float64(m.l.Rate.Units)+float64(m.spare[now])
	if m.l.Algorithm == limit.SlidingWindow {
		before := now.Add(-m.l.Rate.Per)
		counts := 1 - float64(time.Since(now))/float64(m.l.Rate.Per)
		most += float64(m.spare[before]) + 1 // tokens are whole
		used += counts * float64(m.used[before])
		for _, v := range m.live { // which count as of now
			if v.window.Before(now) {
				used += float64(v.n)
			}
			if v.window.Equal(before) {
				used -= counts * float64(v.n)
			}
		}
	}
	if used > most {
		m.t.Errorf("at %v, in the window of %v: %.1f units used, want %.1f at most, of %d", time.Now().UTC(), now.UTC(), used, most, m.l.Rate.Units)
	}
}

// last uses up a window, once all that came back has gone round: what is left can be had.
func (m *windowed) last() {
	time.Sleep(3 * time.Second)
	if _, end := m.rule.Window(time.Now()); time.Until(end) < 8*time.Second {
		time.Sleep(time.Until(end) + time.Second)
	}
	now, units, again := m.window(), m.l.Rate.Units, 300*time.Millisecond
	if m.l.Rate.Per > time.Hour {
		again = 61 * time.Second // exhausted until tomorrow, it is asked again in a minute
	}
	for idle := 0; idle < 2*len(m.all); {
		for _, c := range m.all {
			m.clear()
			if m.allow(c, 1) {
				idle = 0
			} else {
				idle++
				time.Sleep(again)
			}
		}
		if !m.window().Equal(now) {
			m.t.Fatal("the last window was over before it was used up")
		}
	}
	// A request that waits for another limit's answer has units which the store may be told of as spent; denied there, they come back
	// here, and are lost to a window that is used up elsewhere before: those of one request on each client.
	if used, least := m.used[now], units-2*int64(len(m.all)); used < least {
		m.t.Errorf("in the last window %d units were used, want %d at least", used, least)
	}
}

func (m *windowed) run() {
	t := m.t
	began := time.Now()
	const steps = 60
	for range steps {
		m.sleep()
		c := m.all[m.rng.IntN(len(m.all))]
		n := 1 + m.rng.Int64N(max(m.l.Rate.Units/4, 1))
		user := Attribute{"user", fmt.Sprint(m.rng.IntN(2))}
		switch m.rng.IntN(7) {
		case 0:
			m.allow(c, n)
		case 1:
			m.allow(c, 1, user)
		case 2, 3:
			m.reserve(c, n)
		case 4:
			m.reserve(c, min(n, 2), user)
		default:
			if len(m.live) > 0 {
				m.end(m.rng.IntN(len(m.live)))
			}
		}
		m.check()
		if t.Failed() {
			break
		}
	}
	for len(m.live) > 0 {
		m.end(0)
	}
	if m.l.Algorithm == limit.FixedWindow {
		m.last()
	}
	took := time.Since(began)
	m.fake.mu.Lock()
	renews := m.fake.renews
	m.fake.mu.Unlock()
	if most := len(m.all) * int(20*took.Seconds()+10*steps); m.l.Rate.Calendar != limit.Day && renews > most {
		t.Errorf("%d calls in %v, want %d at most", renews, took, most)
	}
	for _, c := range m.all {
		shut(t, c)
		if st := c.Stats(); st.Reservations != 0 || st.UnitsReserved != 0 {
			t.Errorf("stats %+v, want no reservation left", st)
		}
	}
	got := make(map[int64]int64)
	for _, r := range m.fake.allRows() {
		if r.Limit == "windowed" && r.Admitted != 0 {
			got[r.Slot] += r.Admitted
		}
	}
	for slot, n := range m.rows {
		if got[slot] != n {
			t.Errorf("slot %v: the ledger has %d units, want %d", time.Unix(slot, 0).UTC(), got[slot], n)
		}
		delete(got, slot)
	}
	for slot, n := range got {
		t.Errorf("slot %v: the ledger has %d units, want none", time.Unix(slot, 0).UTC(), n)
	}
	m.fake.stop()
}
