package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/ledger"
)

// foldWatch counts folds on their way to the ledger.
type foldWatch struct {
	ledger.Store
	metrics *metrics
	idle    atomic.Int64 // when nothing was left to fold, Unix microseconds
}

func newFoldWatch(store ledger.Store, m *metrics, r prometheus.Registerer) (*foldWatch, error) {
	w := &foldWatch{Store: store, metrics: m}
	w.idle.Store(time.Now().UnixMicro())
	return w, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quota_server_fold_lag_seconds",
		Help: "Seconds since this server last found nothing to fold: near the fold interval while all is well.",
	}, func() float64 { return time.Since(time.UnixMicro(w.idle.Load())).Seconds() }))
}

// Fold is the ledger's.
func (w *foldWatch) Fold(ctx context.Context, now time.Time) (int, error) {
	n, err := w.Store.Fold(ctx, now)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			w.metrics.foldErrors.Inc()
		}
	case n == 0:
		w.idle.Store(time.Now().UnixMicro())
	default:
		w.metrics.folded.Add(float64(n))
	}
	return n, err
}
