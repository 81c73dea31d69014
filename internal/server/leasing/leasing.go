package leasing

import (
	"context"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Policy is what is in force: see view.View.
type Policy interface {
	Current() *view.InForce
	// Tenants resolves tenants in the order of their ids.
	Tenants(ctx context.Context, ids []string) []view.Resolved
	// Wake asks for a look at the store before the next is due, Look waits for one.
	Wake()
	Look(ctx context.Context) error
	// News returns what a stream has not been sent yet, and a channel that is closed when there is more.
	News(at *view.Cursor) ([]*quotav1.WatchResponse, <-chan struct{}, error)
	// UnknownPolicy says why nothing can be answered before a policy is known.
	UnknownPolicy() error
}

// Grants is told what is granted: see granted.Tally.
type Grants interface {
	Answered(agent string, epoch int64, requests []*quotav1.Renewal, places []int, renewals []lease.Renewal, answers []lease.Answer)
}

// Service is what agents call for leases, and to hear of changes.
type Service struct {
	view     Policy
	leases   lease.Store
	grants   Grants
	metrics  *Metrics
	figures  *figures
	holders  *holders
	renewing *authn.Budgets // of renewals
	watches  *watches
	fleet    fleet
	now      func() time.Time
	stopping <-chan struct{} // closed when streams have to end
}

// Config is what leasing is made of.
type Config struct {
	Leases   lease.Store
	View     Policy
	Ledger   ledger.Store // is asked what was used of windows, and told who has leases
	Lasts    Lasting      // the ledger
	Policy   policystore.Store
	Grants   Grants
	Metrics  *Metrics
	Now      func() time.Time
	Stopping <-chan struct{}
}

// New returns the service. It asks the ledger nothing before Run.
func New(c Config) *Service {
	return &Service{
		view: c.View, leases: c.Leases, grants: c.Grants, metrics: c.Metrics, now: c.Now, stopping: c.Stopping,
		figures: newFigures(c.Ledger, c.Policy, c.Lasts, c.Metrics), holders: newHolders(c.Ledger, c.Metrics),
		renewing: authn.NewBudgets(renewBudget), watches: newWatches(),
	}
}

// Run asks the ledger for figures and writes late notes to it, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.figures.run(ctx) })
	running.Go(func() { s.holders.run(ctx) })
	running.Wait()
}

// Forget has the ledger told again who holds leases, because it is another than before.
func (s *Service) Forget() { s.holders.forget() }
