package server_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/pkg/client"
)

var noon = time.Date(2000, 2, 10, 12, 0, 0, 0, time.UTC)

// A day's quota used up by many gateways is used to its last unit, and settled so.
func TestADaysQuotaOverManyGateways(t *testing.T) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: 1000/day, meter: calls}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		var gateways []*client.Client
		for i := range 20 {
			gateways = append(gateways, w.gateway("gw-"+string(rune('a'+i))))
		}
		got := int64(0)
		for range 100 {
			got += allow(1, acme(), gateways...)
			time.Sleep(100 * time.Millisecond)
		}
		if got != 1000 {
			t.Errorf("admitted %d of 1000", got)
		}
		w.shut(gateways...)
		if r := w.settled(ledger.Query{})["calls"]; r.Admitted != 1000 || r.Denied != 1000 {
			t.Errorf("settled %+v, want 1000 admitted and 1000 denied", r)
		}
	})
}

// On the day on which clocks go forward a calendar day has 23 hours, and begins and ends at midnight there.
func TestADayOnWhichClocksGoForward(t *testing.T) {
	edge := time.Date(2000, 3, 25, 23, 0, 0, 0, time.UTC) // midnight in Berlin; the next is at 22:00 UTC
	inWorld(t, edge.Add(-5*time.Second), `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: 100/day, zone: Europe/Berlin, meter: calls}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		a, b := w.gateway("a"), w.gateway("b")
		if got := allow(80, acme(), a, b); got != 100 {
			t.Errorf("before midnight: admitted %d of 100", got)
		}
		d := a.Allow(t.Context(), acme()...)
		if left := time.Until(edge); d.Allowed || d.RetryAfter > left || d.RetryAfter < left-time.Second {
			t.Errorf("denied until in %v, want until midnight, in %v", d.RetryAfter, left)
		}
		time.Sleep(time.Until(edge.Add(50 * time.Millisecond)))
		got := allow(80, acme(), a, b)
		time.Sleep(time.Second) // one of them had seven eighths of the day as its part, and tells of what it does not need
		if got += allow(80, acme(), a, b); got != 100 {
			t.Errorf("after midnight: admitted %d of 100", got)
		}
		d = b.Allow(t.Context(), acme()...)
		if left := time.Until(edge.Add(23 * time.Hour)); d.Allowed || d.RetryAfter > left || d.RetryAfter < left-time.Second {
			t.Errorf("denied until in %v, want until the next midnight, in %v", d.RetryAfter, left)
		}
		w.shut(a, b)
		w.stop()
		time.Sleep(time.Until(edge.Add(23*time.Hour - 3*time.Second)))
		w.start()
		c := w.gateway("c")
		if got := allow(10, acme(), c); got != 0 {
			t.Errorf("three seconds before the next midnight: admitted %d, want none", got)
		}
		time.Sleep(3*time.Second + 50*time.Millisecond)
		if got := allow(150, acme(), c); got != 100 {
			t.Errorf("after the next midnight: admitted %d of 100", got)
		}
		w.shut(c)
	})
}

// A shadow version decides beside the one in force: what it would deny is counted under its version, and denied to
// nobody.
func TestAShadowVersionBesideTheOneInForce(t *testing.T) {
	const text = `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: RATE/hour, meter: calls}]}}
default_plan: p
`
	inWorld(t, noon, strings.Replace(text, "RATE", "200", 1), func(t *testing.T, w *world) {
		if _, err := w.policy.SetShadow(t.Context(), "ann", w.parse(strings.Replace(text, "RATE", "30", 1)), false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		a, b := w.gateway("a"), w.gateway("b")
		got := int64(0)
		for range 60 {
			got += allow(1, acme(), a, b)
			time.Sleep(50 * time.Millisecond)
		}
		if got != 120 {
			t.Errorf("admitted %d of 120, which are below the limit in force", got)
		}
		w.shut(a, b)
		if r := w.settled(ledger.Query{Version: 1})["calls"]; r.Admitted != 120 || r.Denied != 0 {
			t.Errorf("of the version in force %+v is settled, want 120 admitted", r)
		}
		if rows := w.settled(ledger.Query{Version: 2}); len(rows) != 1 || rows["calls"].Denied != 90 || rows["calls"].Admitted != 0 {
			t.Errorf("of the shadow %+v is settled, want 90 that it would have denied", rows)
		}
	})
}

// Of a bucket with a reserve low priority may not spend the last fifth, ordinary not the last twentieth, and high all.
func TestAReserveOverGateways(t *testing.T) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: 1000/day, meter: calls, reserve: {low: 20%, normal: 5%}}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		a, b := w.gateway("a"), w.gateway("b")
		of := func(priority string) (got int64) {
			for range 700 {
				got += allow(1, acme(client.Attribute{Name: "priority", Value: priority}), a, b)
				time.Sleep(100 * time.Millisecond)
			}
			return got
		}
		// What the other gateway spends in a term, of ten seconds at most, this one does not know: 100 units.
		low, normal, high := of("low"), of("normal"), of("high")
		if low > 900 || low < 750 || normal < 50 || low+normal > 1000 || low+normal+high != 1000 {
			t.Errorf("admitted %d low, %d ordinary, %d high, want about 800, 150 and 50, and 1000 in all", low, normal, high)
		}
		w.shut(a, b)
	})
}

// While the server is away buckets that had a lease go on with their share of the rate; of those without, a limit says
// what happens: open admits and counts, closed and fallback deny. What was admitted is settled once the server is back.
func TestAnOutageByLimit(t *testing.T) {
	inWorld(t, noon, `
plans:
  p:
    limits:
      - {name: open, by: [tenant, user], match: {endpoint: /open}, rate: 100/second, on_outage: open, meter: open}
      - {name: closed, by: [tenant, user], match: {endpoint: /closed}, rate: 100/second, on_outage: closed, meter: closed}
      - {name: fallback, by: [tenant, user], match: {endpoint: /fallback}, rate: 100/second, meter: fallback}
default_plan: p
`, func(t *testing.T, w *world) {
		a := w.gateway("a")
		limits := []string{"open", "closed", "fallback"}
		total := make(map[string]int64)
		// drive asks 200 times a second by each limit, for so long.
		drive := func(user string, d time.Duration) map[string]int64 {
			got := make(map[string]int64)
			for range d / (5 * time.Millisecond) {
				for _, name := range limits {
					got[name] += allow(1, acme(client.Attribute{Name: "endpoint", Value: "/" + name}, client.Attribute{Name: "user", Value: user}), a)
				}
				time.Sleep(5 * time.Millisecond)
			}
			for name, n := range got {
				total[name+" user="+user] += n
			}
			return got
		}
		drive("known", 5*time.Second)
		w.stop()
		drive("known", 2*time.Second) // the gateway finds out
		for name, n := range drive("known", 10*time.Second) {
			if n < 900 || n > 1050 {
				t.Errorf("away, a bucket of %s that had a lease admitted %d in ten seconds at 100/s", name, n)
			}
		}
		if got := drive("new", 10*time.Second); got["open"] != 2000 || got["closed"]+got["fallback"] != 0 {
			t.Errorf("away, buckets without a lease admitted %v of 2000 each, want all of open, and none", got)
		}
		w.start()
		time.Sleep(3 * time.Second)
		for name, n := range drive("new", 10*time.Second) {
			if n < 900 || n > 1150 {
				t.Errorf("back, %s admitted %d in ten seconds at 100/s", name, n)
			}
		}
		w.shut(a)
		rows := w.settled(ledger.Query{})
		for which, n := range total {
			if rows[which].Admitted != n {
				t.Errorf("%s: admitted %d, and %d are settled", which, n, rows[which].Admitted)
			}
		}
	})
}

// The share of an agent that fell silent is nobody else's for as long as fallback_hold says, or for a term.
func TestASilentAgentsShareIsHeld(t *testing.T) {
	for hold, held := range map[string]bool{"0s": false, "60s": true} {
		t.Run(hold, func(t *testing.T) {
			inWorld(t, noon, `
plans: {p: {limits: [{name: calls, rate: 100/second, burst: 100, meter: calls, fallback_hold: `+hold+`}]}}
default_plan: p
`, func(t *testing.T, w *world) {
				var cut atomic.Bool
				silent, a := w.gateway("silent", w.cut(&cut)), w.gateway("a")
				drive := func(d time.Duration, clients ...*client.Client) (got int64) {
					for range d / (5 * time.Millisecond) {
						got += allow(1, acme(), clients...)
						time.Sleep(5 * time.Millisecond)
					}
					return got
				}
				drive(10*time.Second, silent, a)
				cut.Store(true)
				drive(20*time.Second, a)
				got := drive(20*time.Second, a)
				if held && (got < 900 || got > 1200) {
					t.Errorf("while the other's half was held the gateway was admitted %d in 20 s, want about 1000", got)
				}
				if !held && got < 1900 {
					t.Errorf("of the whole rate the gateway was admitted %d in 20 s, want about 2000", got)
				}
				drive(30*time.Second, a)
				if got := drive(10*time.Second, a); got < 950 {
					t.Errorf("long after the other fell silent the gateway was admitted %d in 10 s, want about 1000", got)
				}
				cut.Store(false)
				w.shut(silent, a)
			})
		})
	}
}

// What is reserved and never ended is there again after its time, for other gateways too, and bills nothing.
func TestAReservationThatNobodyEnds(t *testing.T) {
	inWorld(t, noon, `
plans: {p: {limits: [{name: calls, algorithm: fixed_window, rate: 100/day, meter: calls}]}}
default_plan: p
`, func(t *testing.T, w *world) {
		a, b := w.gateway("a", client.WithReservationTime(10*time.Second)), w.gateway("b")
		if r, d := a.Reserve(t.Context(), 100, acme()...); r == nil || !d.Allowed {
			t.Fatalf("reserving all of the quota was denied: %+v", d)
		}
		if got := allow(10, acme(), a, b); got != 0 {
			t.Errorf("admitted %d while all is reserved", got)
		}
		time.Sleep(12 * time.Second)
		if got := allow(150, acme(), b); got != 100 {
			t.Errorf("after the reservation expired the other gateway was admitted %d of 100", got)
		}
		w.shut(a, b)
		if r := w.settled(ledger.Query{})["calls"]; r.Admitted != 100 {
			t.Errorf("settled %+v, want the 100 that were admitted", r)
		}
	})
}
