package intake

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// nameless is a ledger that cannot be asked which it is.
type nameless struct {
	ledger.Store
	err   error
	asked int
}

func (l *nameless) Standing(context.Context, []ledger.Epoch) (ledger.Standing, error) {
	l.asked++
	return ledger.Standing{Ledger: "one"}, l.err
}

// That a ledger cannot be asked for its name is logged, once a minute, and no settlement asks more often than when it
// can be.
func TestALedgerWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		l := &nameless{}
		n := &ledgerName{ledger: l, log: slog.New(slog.NewTextHandler(&b, nil)), changed: prometheus.NewCounter(prometheus.CounterOpts{Name: "changes"}), forget: func() { t.Error("it is taken for another") }}
		n.say(t.Context())
		l.err, l.asked = errors.New("permission denied"), 0
		for range 1200 {
			time.Sleep(100 * time.Millisecond)
			if got := n.say(t.Context()); got != "one" {
				t.Fatalf("it is called %q, want one", got)
			}
		}
		if lines := strings.Count(b.String(), "permission denied"); lines != 2 || l.asked > 120 {
			t.Errorf("%d log lines and %d questions in two minutes, want 2 and at most 120:\n%s", lines, l.asked, b.String())
		}
		l.err = nil
		time.Sleep(nameAge)
		n.say(t.Context())
	})
}
