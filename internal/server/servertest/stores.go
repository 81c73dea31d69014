package servertest

import (
	"context"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/server/authn"
)

// PricedPolicy is what stores begin with.
const PricedPolicy = `plans:
  free: {limits: [{name: requests, rate: 100/hour, meter: requests}]}
  paid:
    limits: [{name: requests, rate: 1000/hour, meter: requests}]
    price: {monthly: 31.00 USD, meters: {requests: {tiers: [{up_to: 1000, unit: 0.05}, {unit: 0.01}]}}}
tenants: [{id: acme, plan: free}]
`

// Stores are a ledger and a policy store beside it, at a time of their own.
type Stores struct {
	T      testing.TB
	At     time.Time
	Ledger ledger.Store
	Books  ledger.Books
	Policy *sqlstore.Store
	Seq    map[string]int64
	Total  map[string]int64
	Plan   string // that settle says its units were admitted under
}

// NewStores opens stores in October 2026, with pricedPolicy in force.
func NewStores(t *testing.T, on Engine) *Stores {
	t.Helper()
	b := &Stores{T: t, At: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), Seq: map[string]int64{}, Total: map[string]int64{}}
	b.Ledger, b.Books, b.Policy = on(t, b.Now)
	if err := b.ApplyText(PricedPolicy); err != nil {
		t.Fatal(err)
	}
	return b
}

// Now is the stores' time.
func (b *Stores) Now() time.Time { return b.At }

// Settle has an agent report units of acme in the slot that begins at a time, and folds.
func (b *Stores) Settle(agent string, slot time.Time, units int64, through time.Time) {
	b.T.Helper()
	b.Seq[agent]++
	var rows []ledger.Row
	if units > 0 {
		rows = []ledger.Row{{Slot: slot.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Plan: b.Plan, Admitted: units}}
	}
	r := ledger.NewReport(agent, 1, b.Seq[agent], b.Total[agent], rows, through.UnixMilli(), false)
	b.Total[agent] = r.After
	receipts, err := b.Ledger.Settle(b.T.Context(), []ledger.Report{r})
	if err != nil || receipts[0].Status != ledger.Settled {
		b.T.Fatalf("settle: %+v, %v", receipts, err)
	}
	if _, _, err := b.Ledger.Fold(b.T.Context(), b.At); err != nil {
		b.T.Fatal(err)
	}
}

// Of has an agent report units of a tenant, complete through now, and folds.
func (b *Stores) Of(tenant string, slot time.Time, units int64) {
	b.T.Helper()
	b.Seq["gw"]++
	r := ledger.NewReport("gw", 1, b.Seq["gw"], b.Total["gw"], []ledger.Row{{Slot: slot.Unix(), Tenant: tenant, Limit: "requests", Meter: "requests", Version: 2, Admitted: units}}, b.At.UnixMilli(), false)
	b.Total["gw"] = r.After
	if receipts, err := b.Ledger.Settle(b.T.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
		b.T.Fatalf("settle: %+v, %v", receipts, err)
	}
	if _, _, err := b.Ledger.Fold(b.T.Context(), b.At); err != nil {
		b.T.Fatal(err)
	}
}

// ApplyText applies a policy.
func (b *Stores) ApplyText(text string) error {
	b.T.Helper()
	doc, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		return err
	}
	_, err = b.Policy.Apply(b.T.Context(), "ann", doc, 0, false)
	return err
}

// AsAnn is a call of ann's.
func AsAnn(ctx context.Context) context.Context {
	return authn.WithPrincipal(ctx, authn.Principal{Name: "ann"})
}
