package pgledger_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/testenv"
)

// A database whose owner keeps the system's identifier to themselves, and the place in the log, still says how far
// epochs are, and which it is.
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
