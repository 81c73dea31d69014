package leasing

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// holdLedger notes holders after a while, or fails to.
type holdLedger struct {
	ledger.Store
	after time.Duration
	err   error
	noted []string
}

func (l *holdLedger) Hold(_ context.Context, h ledger.Hold) error {
	time.Sleep(l.after)
	if l.err == nil {
		l.noted = append(l.noted, h.Sorted()...)
	}
	return l.err
}

// A call waits until its agent is noted, once for each tenant; never longer than holdWait, and not at all while the
// ledger is known to be away.
func TestHoldersAreNotedBeforeTheySpend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		m, err := NewMetrics(r)
		if err != nil {
			t.Fatal(err)
		}
		l := &holdLedger{after: 5 * time.Millisecond}
		h := newHolders(l, m)
		note := func(why string, want time.Duration, unnoted float64, tenants ...string) {
			t.Helper()
			began := time.Now()
			h.note(ledger.Hold{Epoch: ledger.Epoch{Agent: "a", Epoch: 1}, Tenants: tenants})()
			if got := time.Since(began); got != want {
				t.Errorf("%s: the call waited %v, want %v", why, got, want)
			}
			if got := servertest.Counter(t, r, "quota_server_unnoted_holders_total"); got != unnoted {
				t.Errorf("%s: %v calls went on unnoted, want %v", why, got, unnoted)
			}
		}
		note("the first lease", l.after, 0, "acme")
		note("the next", 0, 0, "acme")
		note("another tenant", l.after, 0, "acme", "umbrella")
		l.after = time.Second
		note("the ledger is slow", holdWait, 1, "initech")
		time.Sleep(time.Second)
		note("it was noted after all", 0, 1, "initech")
		l.after, l.err = 0, errors.New("away")
		note("the ledger is away", 0, 2, "hooli")
		note("it was away just now", 0, 3, "hooli")
		l.err = nil
		time.Sleep(holdPause)
		note("it is back", 0, 3, "hooli")
		l.noted = nil // what was late comes too
		h.catchUp(t.Context())
		if want := []string{"hooli", "hooli"}; !slices.Equal(l.noted, want) {
			t.Errorf("late is noted %v, want %v", l.noted, want)
		}
		l.noted = nil
		h.catchUp(t.Context())
		h.forget()
		note("it is another", 0, 3, "hooli")
		l.after = 50 * time.Millisecond
		wait := h.note(ledger.Hold{Epoch: ledger.Epoch{Agent: "a", Epoch: 1}, Tenants: []string{"globex"}})
		time.Sleep(l.after / 2)
		h.forget()
		wait()
		note("it was noted in the one before", l.after, 3, "globex")
		if want := []string{"hooli", "globex", "globex"}; !slices.Equal(l.noted, want) {
			t.Errorf("noted %v, want %v", l.noted, want)
		}
	})
}
