package statements

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// Late usage in the month that stays, of a closed period that begins in one that goes, has
// that period rated again: its entries stay until that is in a statement.
func TestLateUsageAcrossTheCut(t *testing.T) {
	b := newBilled(t)
	doc, err := policy.Parse("quota.yaml", []byte(strings.Replace(servertest.PricedPolicy, "{id: acme, plan: free}", "{id: acme, plan: paid, billing: {zone: America/New_York}}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Policy.Apply(t.Context(), "ann", doc, 0, false); err != nil {
		t.Fatal(err)
	}
	b.At = time.Date(2026, 10, 10, 0, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 500, b.At)
	b.At = time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 1, b.At)
	for _, period := range []string{"2026-09", "2026-10"} {
		if _, err := b.close(period, ""); err != nil {
			t.Fatal(err)
		}
	}
	// Of October in New York, of November in UTC.
	b.Settle("gw-2", time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC), 700, b.At)
	b.At = time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 0, b.At)
	b.Settle("gw-2", b.At, 0, b.At)
	o := sqlbooks.NewOwner(b.Ledger.(*sqliteledger.Store).DB(), sqlbooks.SQLite, func() time.Time { return b.At })
	r := sqlbooks.Retention{Before: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Dir: t.TempDir(), Actor: "keeper"}
	if done, err := o.Retain(t.Context(), r); !errors.Is(err, ledger.ErrRetention) || !strings.Contains(err.Error(), "2026-11, of tenants acme") {
		t.Errorf("before the statement: got %d files, %v, want it refused", len(done), err)
	}
	if _, err := b.close("2026-11", ""); err != nil {
		t.Fatalf("close November: %v", err)
	}
	if done, err := o.Retain(t.Context(), r); err != nil || len(done) == 0 {
		t.Errorf("after the statement: got %d files, %v, want October archived", len(done), err)
	}
	if _, err := b.close("2026-12", ""); err != nil {
		t.Errorf("close December: %v", err)
	}
}
