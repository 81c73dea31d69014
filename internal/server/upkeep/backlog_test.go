package upkeep

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// How long a backlog takes to fold is told from what was folded since the last look.
func TestBacklog(t *testing.T) {
	registry := prometheus.NewRegistry()
	w, err := NewBacklog(nil, registry)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		rows          int64
		drain, oldest float64
	}{{1000, 0, 30}, {1500, math.Inf(1), 30}, {500, 5, 30}, {0, 0, 0}} {
		l := ledger.Backlog{Reports: c.rows / 100, Rows: c.rows, Quarantined: 7, Corrections: 2}
		if c.rows > 0 {
			l.Oldest = now.Add(-30 * time.Second)
		}
		w.show(l, now)
		for name, want := range map[string]float64{
			"unfolded_rows": float64(c.rows), "unfolded_reports": float64(c.rows / 100), "drain_seconds": c.drain,
			"oldest_unfolded_seconds": c.oldest, "quarantined": 7, "unfolded_corrections": 2,
		} {
			if got := servertest.Gauge(t, registry, "quota_server_"+name); got != want {
				t.Errorf("%d rows: %s is %v, want %v", c.rows, name, got, want)
			}
		}
		now = now.Add(10 * time.Second)
	}
	w.showLost(ledger.Losses{Told: []ledger.Loss{{Most: 5, Known: true}, {Most: 7}}, More: 3})
	for name, want := range map[string]float64{"lost_epochs": 5, "lost_units": 12} {
		if got := servertest.Gauge(t, registry, "quota_server_"+name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
