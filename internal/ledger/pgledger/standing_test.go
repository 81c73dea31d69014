package pgledger_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/testenv"
)

// A database's owner keeps the system's identifier and the place in the log to themselves. The database still
// says how far epochs are settled, and which it is.
func TestStandingWithoutTheSystemsIdentifier(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	s := open(t, pg, ledger.Options{})
	for _, secret := range []string{"pg_control_system()", "pg_current_wal_lsn()"} {
		query(t, pg.OwnerURL(), "REVOKE EXECUTE ON FUNCTION "+secret+" FROM PUBLIC")
		st, err := s.Standing(t.Context(), []ledger.Epoch{{Agent: "a", Epoch: 1}})
		if err != nil || len(st.Frontiers) != 1 || st.Ledger == "" {
			t.Errorf("%+v: %v", st, err)
		}
	}
}

// The name and the frontiers are of one server, also where another takes its place between two statements: they are one.
func TestStandingIsOneStatement(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	s, err := pgledger.Open(t.Context(), withParam(pg.AppURL(), "pool_max_conns=1"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, asked := range [][]ledger.Epoch{nil, {{Agent: "a", Epoch: 1}}} {
		if _, err := s.Standing(t.Context(), asked); err != nil {
			t.Fatal(err)
		}
	}
	var both, one int64
	err = s.Pool().QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE names AND reads), count(*) FILTER (WHERE names <> reads) FROM (
		SELECT statement LIKE '%pg_postmaster' || '_start_time%' AS names, statement LIKE '%FROM ' || 'frontier%' AS reads FROM pg_prepared_statements) AS s`).Scan(&both, &one)
	if err != nil {
		t.Fatal(err)
	}
	if both != 1 || one != 0 {
		t.Errorf("%d statements have the name and the frontiers, %d one of them; want one that has both", both, one)
	}
}
