package statements

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/rpc"
)

const (
	// closeEvery is how often a server looks for periods to close.
	closeEvery = 10 * time.Minute
	// closeTerm is how long a server leads without renewing its lead; then another may.
	closeTerm = 2 * closeEvery
	// maxFaulty is how many tenants' faults are kept, so that each is logged once; beyond, they
	// are counted.
	maxFaulty = 1000
)

// Closer closes statements a grace after their periods' ends. Every server has one, and
// one of them leads; should two, a statement is still closed once.
type Closer struct {
	statements *Service
	grace      time.Duration
	holder     string
	log        *slog.Logger
	closed     prometheus.Counter
	refused    prometheus.Gauge
	said       int               // refusals at the last round
	faulty     map[string]string // at the last round: a tenant's fault, which waiting does not mend
}

// NewCloser closes the statements of s a grace after their periods' ends, once it runs.
func NewCloser(s *Service, grace time.Duration, log *slog.Logger, r prometheus.Registerer) (*Closer, error) {
	c := &Closer{
		statements: s, grace: grace, holder: rand.Text(), log: log,
		closed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "quota_server_statements_closed_total", Help: "Statements that this server closed by itself."}),
		refused: prometheus.NewGauge(prometheus.GaugeOpts{Name: "quota_server_statements_refused", Help: "Tenants whose next period is due and could not be closed, at this server's last round as the leader."}),
	}
	return c, errors.Join(r.Register(c.closed), r.Register(c.refused))
}

// Run goes over the tenants every closeEvery until ctx ends.
func (c *Closer) Run(ctx context.Context) {
	tick := time.NewTicker(closeEvery)
	defer tick.Stop()
	for {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("closing statements broke off; the next round goes on", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// round goes over all tenants, if this server leads.
func (c *Closer) round(ctx context.Context) error {
	o := dueOptions{grace: c.grace}
	refused, first := 0, error(nil)
	faulty := map[string]string{}
	for after := ""; ; {
		leads, err := c.statements.policy.Lead(ctx, "close statements", c.holder, closeTerm)
		if err != nil || !leads {
			return err
		}
		_, next, err := c.statements.tenants(ctx, after, policystore.MaxPage, func(tenant string) error {
			return c.statements.closeDue(ctx, rpc.Actor, tenant, &o, func(d *due) {
				if d.why == nil {
					c.closed.Inc()
					c.log.Info("statement closed", "tenant", tenant, "period", d.period.Name, "digest", d.statement.Digest)
					return
				}
				if refused++; first == nil {
					first = d.why
				}
				if errors.Is(d.why, fault.ErrInvalid) || len(faulty) == maxFaulty {
					return
				}
				faulty[tenant] = d.why.Error()
				if c.faulty[tenant] != faulty[tenant] {
					c.log.Error("a tenant's statement cannot be made", "tenant", tenant, "period", d.period.Name, "error", d.why)
				}
			})
		})
		if err != nil {
			return err
		}
		if after = next; after == "" {
			break
		}
	}
	c.refused.Set(float64(refused))
	if refused > 0 && refused != c.said {
		c.log.Warn("statements are due and cannot be closed yet", "tenants", refused, "first", first)
	}
	c.said, c.faulty = refused, faulty
	return nil
}
