package upkeep

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Folds counts folds on their way to the ledger.
type Folds struct {
	ledger.Store
	folded prometheus.Counter // reports
	errors prometheus.Counter
	idle   atomic.Int64 // when a fold left nothing, Unix microseconds
}

// NewFolds counts the folds of store.
func NewFolds(store ledger.Store, r prometheus.Registerer) (*Folds, error) {
	w := &Folds{
		Store: store,
		folded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_folded_reports_total", Help: "Reports that this server folded into blocks.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_fold_errors_total", Help: "Folds that failed, and are tried again.",
		}),
	}
	w.idle.Store(time.Now().UnixMicro())
	return w, errors.Join(r.Register(w.folded), r.Register(w.errors), r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quota_server_fold_lag_seconds",
		Help: "Seconds since a fold of this server last left nothing to fold: near the fold interval while all is well.",
	}, func() float64 { return time.Since(time.UnixMicro(w.idle.Load())).Seconds() })))
}

// Fold is the ledger's.
func (w *Folds) Fold(ctx context.Context, now time.Time) (int, bool, error) {
	n, left, err := w.Store.Fold(ctx, now)
	if err != nil {
		if ctx.Err() == nil {
			w.errors.Inc()
		}
		return 0, false, err
	}
	w.folded.Add(float64(n))
	if !left {
		w.idle.Store(time.Now().UnixMicro())
	}
	return n, left, nil
}
