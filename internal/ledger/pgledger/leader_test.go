package pgledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/testenv"
)

// A server that dies in the middle of a fold, with its block half written, leaves nothing of it. While it lives
// the others do not fold. Once its connection is gone, the next one leads within a second and folds everything,
// once.
func TestLeadershipMoves(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	clock := ledgertest.NewClock()
	s := open(t, pg, ledger.Options{Now: clock.Now})
	var total int64
	for seq := int64(1); seq <= 5; seq++ {
		r := ledger.NewReport("a", 0, seq, total, []ledger.Row{{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "l", Meter: "m", Admitted: seq}}, clock.Now().UnixMilli(), false)
		if receipts, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
			t.Fatalf("got %+v, %v", receipts, err)
		}
		total = r.After
	}
	// The leader holds what its fold holds, and has written a part.
	leader := connect(t, pg.AppURL())
	for _, statement := range []string{
		"BEGIN", "SELECT pg_advisory_xact_lock(hashtextextended('quota.fold.' || current_schema(), 0))",
		"INSERT INTO blocks (height, previous, hash, reports, entries, sources, folded_ms) VALUES (1, '', '', 2, 1, '', 0)",
		"DELETE FROM queue WHERE seq <= 2",
	} {
		if _, err := leader.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 0 {
			t.Fatalf("while another leads: folded %d, %v, want 0", n, err)
		}
	}
	if err := leader.PgConn().Conn().Close(); err != nil { // as the kernel does for a process that was killed
		t.Fatal(err)
	}
	begun := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	f := ledger.NewFolder(s, 50*time.Millisecond, nil)
	folded := 0
	f.Observe = func(n int, _ time.Duration, err error) {
		if err != nil {
			t.Errorf("fold: %v", err)
		}
		if folded += n; folded >= 5 {
			stop()
		}
	}
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); folded != 5 || took > 30*time.Second {
		t.Errorf("folded %d reports after %v, want 5 soon", folded, took)
	}
	v, err := s.Books().Verify(t.Context(), nil)
	if err != nil || !v.Sound() || v.Height != 1 {
		t.Errorf("verify: got %+v, %v, want one sound block", v, err)
	}
}
