package granted

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// tallyEvery is how often notes are written. A server that dies loses the notes since; reconciliation says so.
	tallyEvery = 10 * time.Second
	// tallyTimeout bounds one writing.
	tallyTimeout = 10 * time.Second
	// maxTally bounds the accounts that wait to be written, some hundred bytes each. More are left out, and counted.
	maxTally = 100_000
	// reconciledFor is how recently an epoch must have settled for the metric to hold it.
	reconciledFor = 10 * time.Minute
)

// Tally notes what this server grants, and what agents say of it, by agent, epoch and limit. It writes both to the
// ledger now and then, for reconciliation. A renewal costs one addition to a map.
type Tally struct {
	books       ledger.Books
	log         *slog.Logger
	server      string                  // new with every start
	named       func(limit string) bool // whether the policy names it
	left        prometheus.Counter
	refused     prometheus.Counter
	differences *prometheus.GaugeVec // name
	over        *Overdrafts          // told of what is granted; nil for nobody

	mu    sync.Mutex
	noted map[ledger.AccountID]*ledger.Account

	writing sync.RWMutex // guards what follows
	number  int64        // of the last record
	under   []ledger.Account
	failing bool
}

// NewTally notes what is granted and said; named reports whether the policy names a limit.
func NewTally(books ledger.Books, named func(limit string) bool, log *slog.Logger, r prometheus.Registerer) (*Tally, error) {
	t := &Tally{
		books: books, log: log, server: rand.Text(), noted: map[ledger.AccountID]*ledger.Account{},
		named: named,
		left: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_unrecorded_renewals_total", Help: "Renewals that reconciliation misses, because too many accounts waited to be written.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quota_server_refused_accounts_total", Help: "Accounts of leases that reconciliation misses, because the ledger refused them or others sent with them.",
		}),
		differences: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "quota_server_reconciliation_units",
			Help: "Units that differ between servers' records, agents' accounts and the ledger, by the difference's name, over epochs that settled lately.",
		}, []string{"difference"}),
	}
	for _, c := range []prometheus.Collector{t.left, t.refused, t.differences} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Answered notes one call's renewals that were granted.
func (t *Tally) Answered(agent string, epoch int64, requests []*quotav1.Renewal, places []int, renewals []lease.Renewal, answers []lease.Answer) {
	if t == nil {
		return
	}
	id := ledger.AccountID{Epoch: ledger.Epoch{Agent: agent, Epoch: epoch}}
	var a *ledger.Account
	t.mu.Lock()
	defer t.mu.Unlock()
	drawn, done := t.over.renewed(id.Epoch)
	defer done()
	for j := range renewals {
		r, p := &renewals[j], requests[places[j]]
		if err := answers[j].Err; drawn != nil && (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrFormat)) {
			drawn.away = t.over.now()
		}
		if answers[j].Err != nil || p.Shadow || r.Spec.Algorithm == limit.Concurrency {
			continue
		}
		if a == nil || id.Limit != p.Limit {
			id.Limit = p.Limit
			if a = t.accountLocked(id); a == nil {
				t.left.Inc()
				if drawn != nil {
					drawn.away = t.over.now() // not recorded: nothing is held against it
				}
				continue
			}
		}
		a.Claimed = false
		noted := ledger.Recorded{Granted: answers[j].Grant.Most(), Unrun: r.Unrun(), Returned: r.Held, Spent: max(r.Admitted-r.Told, 0)}
		a.Recorded.Add(noted)
		if drawn != nil {
			drawn.answered(t.over.now())
		}
		drawn.granted(t.over, p.Limit, noted)
	}
}

// Say notes what an agent says of its leases. A limit that the policy does not name may be an override's, gone, or made
// up. For those only accounts of limits that servers granted by are kept.
func (t *Tally) Say(said map[ledger.AccountID]ledger.Said) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, s := range said {
		_, there := t.noted[id]
		a := t.accountLocked(id)
		if a != nil && !there {
			a.Claimed = !t.named(id.Limit)
		}
		if a != nil && (a.Said == nil || a.Said.Number < s.Number) {
			a.Said = &s
		}
	}
}

// accountLocked is the note of an account; nil where no more are taken.
func (t *Tally) accountLocked(id ledger.AccountID) *ledger.Account {
	a := t.noted[id]
	if a == nil && len(t.noted) < maxTally {
		a = &ledger.Account{ID: id}
		t.noted[id] = a
	}
	return a
}

// Run writes until ctx ends. The caller then flushes once more.
func (t *Tally) Run(ctx context.Context) {
	tick := time.NewTicker(tallyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if t.Flush(ctx) == nil {
			t.measure(ctx)
		}
	}
}

// Flush writes the notes. If that fails, they are written again under the same number, so they are added once even if
// the first write succeeded. Notes that the ledger refuses for their content are left out: it would refuse them for
// ever, and all later notes would wait.
func (t *Tally) Flush(ctx context.Context) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	for {
		if len(t.under) == 0 {
			t.mu.Lock()
			for _, a := range t.noted {
				t.under = append(t.under, *a)
			}
			clear(t.noted)
			t.mu.Unlock()
			if len(t.under) == 0 {
				return nil
			}
			t.number++
		}
		c, cancel := context.WithTimeout(ctx, tallyTimeout)
		err := t.books.Record(c, t.server, t.number, t.under)
		cancel()
		if err != nil && !errors.Is(err, ledger.ErrUnavailable) && ctx.Err() == nil {
			t.refused.Add(float64(len(t.under)))
			t.log.Error("the ledger refuses what leases came to; reconciliation misses it", "accounts", len(t.under), "error", err)
			t.under = nil
			continue
		}
		if failing := err != nil; failing != t.failing && ctx.Err() == nil {
			t.failing = failing
			t.log.Info("what leases came to cannot be written, or can again; reconciliation lags", "error", err)
		}
		if err != nil {
			return err
		}
		t.under = nil
	}
}

// measure sets the metric.
func (t *Tally) measure(ctx context.Context) {
	q := ledger.ReconcileQuery{N: 1000, Since: time.Now().Add(-reconciledFor).UnixMilli()}
	units := map[string]float64{} // which do not overflow
	for _, name := range ledger.DifferenceNames {
		units[name] = 0
	}
	for {
		found, err := t.books.Reconcile(ctx, q)
		if err != nil {
			return // the next will do
		}
		for i := range found {
			for _, d := range found[i].Differences() {
				units[d.Name] += math.Abs(float64(d.Units))
			}
		}
		if len(found) < q.N {
			break
		}
		q.After = found[len(found)-1].ID
	}
	for name, n := range units {
		t.differences.WithLabelValues(name).Set(n)
	}
}
