package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// foldWatch counts folds on their way to the ledger.
type foldWatch struct {
	ledger.Store
	metrics *metrics
	idle    atomic.Int64 // when a fold left nothing, Unix microseconds
}

func newFoldWatch(store ledger.Store, m *metrics, r prometheus.Registerer) (*foldWatch, error) {
	w := &foldWatch{Store: store, metrics: m}
	w.idle.Store(time.Now().UnixMicro())
	return w, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quota_server_fold_lag_seconds",
		Help: "Seconds since a fold of this server last left nothing to fold: near the fold interval while all is well.",
	}, func() float64 { return time.Since(time.UnixMicro(w.idle.Load())).Seconds() }))
}

// Fold is the ledger's.
func (w *foldWatch) Fold(ctx context.Context, now time.Time) (int, bool, error) {
	n, left, err := w.Store.Fold(ctx, now)
	if err != nil {
		if ctx.Err() == nil {
			w.metrics.foldErrors.Inc()
		}
		return 0, false, err
	}
	w.metrics.folded.Add(float64(n))
	if !left {
		w.idle.Store(time.Now().UnixMicro())
	}
	return n, left, nil
}
