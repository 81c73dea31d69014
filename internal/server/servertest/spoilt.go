package servertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
)

// FaultyPolicy is what spoilt stores begin with.
const FaultyPolicy = `default_plan: p
plans: {p: {limits: [{name: x, rate: 1/s, meter: x}]}}
tenants: [{id: a, plan: p}, {id: b, plan: p, limits: [{name: x, burst: 5}]}, {id: c, plan: p, limits: [{name: x, burst: 6}]}]
`

// Spoilt is a policy store whose rows a test can spoil.
type Spoilt struct {
	T     *testing.T
	Store *sqlstore.Store
	l     ledger.Store // of the same database
}

// NewSpoilt opens one with faultyPolicy in force.
func NewSpoilt(t *testing.T, on Engine) *Spoilt {
	t.Helper()
	s := &Spoilt{T: t}
	s.l, _, s.Store = on(t, time.Now)
	s.Apply(FaultyPolicy)
	return s
}

// Apply puts a policy in force.
func (s *Spoilt) Apply(text string) {
	s.T.Helper()
	doc, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		s.T.Fatal(err)
	}
	if _, err := s.Store.Apply(s.T.Context(), "ann", doc, 0, false); err != nil {
		s.T.Fatal(err)
	}
}

// Exec changes rows behind the store's back.
func (s *Spoilt) Exec(query string) {
	s.T.Helper()
	var err error
	switch l := s.l.(type) {
	case *sqliteledger.Store:
		_, err = l.DB().ExecContext(s.T.Context(), query)
	case *pgledger.Store:
		_, err = l.Pool().Exec(s.T.Context(), query)
	}
	if err != nil {
		s.T.Fatal(err)
	}
}

// Override gives a tenant another burst of a limit, as a change; nothing checks that its plan has the limit.
func (s *Spoilt) Override(id, name string, burst int) {
	s.T.Helper()
	s.Exec(`UPDATE policy_heads SET tenants = tenants + 1`)
	s.Exec(fmt.Sprintf(`UPDATE tenants SET overrides = '[{"name": %q, "burst": %d}]', change = (SELECT tenants FROM policy_heads) WHERE id = '%s'`, name, burst, id))
}

// Spoil gives a tenant overrides of a limit that its plan has not.
func (s *Spoilt) Spoil(id string) { s.T.Helper(); s.Override(id, "gone", 9) }

// Spoil gives a tenant of a ledger's database overrides of a limit that its plan has not.
func Spoil(t *testing.T, l ledger.Store, id string) {
	t.Helper()
	(&Spoilt{T: t, l: l}).Spoil(id)
}
