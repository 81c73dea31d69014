package pgledger_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/testenv"
)

// What a query reads depends on its range and tenant: Postgres must not take one plan
// for all of them, which it does from the sixth time on where that looks as cheap.
func TestUsageIsPlannedForWhatItAsks(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	s, err := pgledger.Open(t.Context(), withParam(pg.AppURL(), "pool_max_conns=1"), ledger.Options{Now: ledgertest.NewClock().Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 10 {
		if _, err := s.Usage(t.Context(), ledger.Query{By: ledger.ByAttribute}); err != nil {
			t.Fatal(err)
		}
	}
	var generic, custom int64
	err = s.Pool().QueryRow(t.Context(), `SELECT coalesce(sum(generic_plans), 0)::bigint, coalesce(sum(custom_plans), 0)::bigint
		FROM pg_prepared_statements WHERE statement LIKE '%FROM rollups r ' || 'JOIN keys%'`).Scan(&generic, &custom)
	if err != nil {
		t.Fatal(err)
	}
	if generic != 0 || custom != 10 {
		t.Errorf("got %d generic plans and %d custom ones, want 10 custom", generic, custom)
	}
}
