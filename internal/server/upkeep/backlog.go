package upkeep

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// backlogEvery is how often the ledger is asked what it has still to do.
const backlogEvery = 10 * time.Second

// lostFor is how long ago a lost epoch may have been heard of to be shown: silence takes a day, and is shown for one.
const lostFor = 2 * ledger.SilentAfter

// Backlog shows what the ledger has still to do, and what will never come to it.
type Backlog struct {
	books                                         ledger.Books
	reports, rows, oldest, drain, kept, corrected prometheus.Gauge
	lost, units                                   prometheus.Gauge

	last ledger.Backlog
	at   time.Time // when last was read; zero before
}

// NewBacklog shows what books have still to do, once it runs.
func NewBacklog(books ledger.Books, r prometheus.Registerer) (*Backlog, error) {
	w := &Backlog{books: books}
	for _, g := range []struct {
		at         *prometheus.Gauge
		name, help string
	}{
		{&w.reports, "unfolded_reports", "Settled reports that are not folded yet."},
		{&w.rows, "unfolded_rows", "Rows of settled reports that are not folded yet."},
		{&w.oldest, "oldest_unfolded_seconds", "Age of the oldest stored report that is not folded; 0 without one."},
		{&w.drain, "drain_seconds", "How long folding the backlog takes at the pace of the last ten seconds; +Inf while it grows."},
		{&w.kept, "quarantined", "Rows and reports in quarantine that were neither released nor discarded."},
		{&w.corrected, "unfolded_corrections", "Corrections that are not folded yet."},
		{&w.lost, "lost_epochs", "Starts of agents heard of within two days that ended without their last report. Usage counts as complete without them."},
		{&w.units, "lost_units", "The most units of these that may be missing, of the limits of which grants are recorded."},
	} {
		*g.at = prometheus.NewGauge(prometheus.GaugeOpts{Name: "quota_server_" + g.name, Help: g.help})
		if err := r.Register(*g.at); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Run asks until ctx ends.
func (w *Backlog) Run(ctx context.Context) {
	tick := time.NewTicker(backlogEvery)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, backlogEvery)
		l, err := w.books.Backlog(asking)
		if err == nil { // else it is said elsewhere, and the figures stay
			w.show(l, time.Now())
		}
		lost, err := w.books.Losses(asking, time.Now().Add(-lostFor), ledger.MaxLosses)
		if err == nil {
			w.showLost(lost)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Backlog) show(l ledger.Backlog, now time.Time) {
	w.reports.Set(float64(l.Reports))
	w.rows.Set(float64(l.Rows))
	w.kept.Set(float64(l.Quarantined))
	w.corrected.Set(float64(l.Corrections))
	age := 0.0
	if !l.Oldest.IsZero() {
		age = max(now.Sub(l.Oldest).Seconds(), 0)
	}
	w.oldest.Set(age)
	drain := 0.0
	if folded := w.last.Rows - l.Rows; l.Rows > 0 && !w.at.IsZero() {
		drain = math.Inf(1)
		if folded > 0 {
			drain = float64(l.Rows) / float64(folded) * now.Sub(w.at).Seconds()
		}
	}
	w.drain.Set(drain)
	w.last, w.at = l, now
}

func (w *Backlog) showLost(l ledger.Losses) {
	units := 0.0
	for i := range l.Told {
		units += float64(l.Told[i].Most)
	}
	w.lost.Set(float64(int64(len(l.Told)) + l.More))
	w.units.Set(units)
}
