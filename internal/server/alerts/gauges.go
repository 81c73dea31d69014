package alerts

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/core/ledger"
)

// deliveryGauge counts deliveries when it is asked.
type deliveryGauge struct {
	store alert.Store
	desc  *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (g *deliveryGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is prometheus.Collector's. While the store is away there are no figures.
func (g *deliveryGauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pending, dead, err := g.store.Count(ctx)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(pending), alert.Pending)
	to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(dead), alert.Dead)
}

// outageGauge tells of webhooks that fail when it is asked. They are few: policy.MaxWebhooks.
type outageGauge struct {
	store alert.Store
	desc  *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (g *outageGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is prometheus.Collector's. While the store is away there are no figures.
func (g *outageGauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, err := g.store.Outages(ctx)
	if err != nil {
		return
	}
	for _, o := range all {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, time.Since(o.Open).Seconds(), o.Webhook)
	}
}

// lookGauge says, when scraped, how far looks are behind. It reads what is stored, so it grows even where no server
// leads.
type lookGauge struct {
	store alert.Store
	books ledger.Books
	desc  *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (g *lookGauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is prometheus.Collector's. While the stores are away there is no figure.
func (g *lookGauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	marks, err := g.store.Marks(ctx)
	if err != nil {
		return
	}
	block, err := g.books.After(ctx, max(0, marks.Height))
	if err != nil {
		return
	}
	age := 0.0
	if block.Height > 0 {
		age = max(0, time.Since(block.Folded).Seconds())
	}
	to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, age)
}
