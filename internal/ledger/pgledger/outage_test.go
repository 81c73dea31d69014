package pgledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/ledger/pgledger"
	"github.com/f4ee788f/quota/internal/testenv"
)

// A Postgres server that goes away is an error that says so. It is used again when it is back, and what was
// acknowledged is there.
func TestOutage(t *testing.T) {
	pg := testenv.PrivatePostgres(t, true)
	migrate(t, pg)
	s, app := open(t, pg, ledger.Options{}), pg.AppURL()
	now := time.Now()
	report := func(seq int64) ledger.Report {
		return ledger.NewReport("a", 0, seq, (seq-1)*5, []ledger.Row{
			{Slot: now.Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 5},
		}, now.UnixMilli(), false)
	}
	settle := func(seq int64) (ledger.Receipt, error) {
		receipts, err := s.Settle(t.Context(), []ledger.Report{report(seq)})
		if err != nil {
			return ledger.Receipt{}, err
		}
		return receipts[0], nil
	}
	if r, err := settle(1); err != nil || r.Status != ledger.Settled {
		t.Fatalf("settle: %+v, %v", r, err)
	}
	if n := pg.TerminateBackends(); n == 0 {
		t.Error("no connection to break")
	}
	if r, err := settle(2); err == nil && r.Status != ledger.Settled || err != nil && !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("after broken connections: got %+v, %v", r, err)
	}
	if r, err := settle(2); err != nil || r.NextSeq != 3 {
		t.Errorf("again: got %+v, %v, want it settled", r, err)
	}
	pg.Stop()
	if _, err := settle(3); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("settle while away: got %v, want ErrUnavailable", err)
	}
	if _, _, err := s.Fold(t.Context(), now); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("fold while away: got %v, want ErrUnavailable", err)
	}
	if _, err := s.Usage(t.Context(), ledger.Query{}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("usage while away: got %v, want ErrUnavailable", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("ping while away: got %v, want ErrUnavailable", err)
	}
	// A server that starts now opens its store all the same.
	late, err := pgledger.Open(t.Context(), app, ledger.Options{})
	if err != nil {
		t.Fatalf("open while away: %v", err)
	}
	defer late.Close()
	pg.Start()
	for seq := int64(1); seq <= 3; seq++ {
		want := ledger.Already
		if seq == 3 {
			want = ledger.Settled
		}
		if r, err := settle(seq); err != nil || r.Status != want {
			t.Errorf("report %d after the outage: got %+v, %v, want status %d", seq, r, err, want)
		}
	}
	u, err := late.Usage(t.Context(), ledger.Query{Tenant: "acme"})
	if err != nil || len(u.Rows) != 1 || u.Rows[0].Admitted != 15 {
		t.Errorf("usage after the outage: got %+v, %v, want 15", u, err)
	}
}

// Connections break at any moment while two servers settle and fold. Agents send again until they are
// acknowledged, and in the end all is there, once.
func TestBrokenConnections(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	clock := ledgertest.NewClock()
	stores := []*pgledger.Store{open(t, pg, ledger.Options{Now: clock.Now}), open(t, pg, ledger.Options{Now: clock.Now})}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var folders, agents sync.WaitGroup
	var acknowledged atomic.Int64
	for _, s := range stores {
		folders.Go(func() { _ = ledger.NewFolder(s, time.Millisecond, nil).Run(ctx) })
	}
	const count, reports = 8, 30
	for i := range count {
		agents.Go(func() {
			var total int64
			for seq := int64(1); seq <= reports; seq++ {
				r := ledger.NewReport(fmt.Sprintf("agent-%d", i), 0, seq, total, []ledger.Row{
					{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Attributes: fmt.Sprint(seq % 7), Admitted: seq},
				}, clock.Now().UnixMilli(), false)
				for n := i; ; n++ {
					receipts, err := stores[n%2].Settle(t.Context(), []ledger.Report{r})
					if err == nil && (receipts[0].Status == ledger.Settled || receipts[0].Status == ledger.Already) {
						break
					}
					if err == nil || !errors.Is(err, ledger.ErrUnavailable) {
						t.Errorf("%s report %d: got %+v, %v", r.Agent, seq, receipts, err)
						return
					}
				}
				total = r.After
				acknowledged.Add(1)
			}
		})
	}
	settled := make(chan struct{})
	go func() { agents.Wait(); close(settled) }()
	broken := 0
	const often = 100 * time.Millisecond
	for pause, before := often, int64(0); ; {
		select {
		case <-time.After(pause):
			broken += pg.TerminateBackends()
			// Where connecting alone takes longer than that, as on a machine that is busy with much else, nothing would ever be settled.
			n := acknowledged.Load()
			if pause *= 2; n > before {
				pause = often
			}
			before = n
			continue
		case <-settled:
		}
		break
	}
	if broken == 0 {
		t.Error("no connection was broken")
	}
	stop()
	folders.Wait()
	for {
		n, _, err := stores[0].Fold(t.Context(), clock.Now())
		if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatal(err)
		}
		if err == nil && n == 0 {
			break
		}
	}
	u, err := open(t, pg, ledger.Options{Now: clock.Now}).Usage(t.Context(), ledger.Query{Tenant: "acme"})
	if want := int64(count * reports * (reports + 1) / 2); err != nil || len(u.Rows) != 1 || u.Rows[0].Admitted != want {
		t.Errorf("after %d broken connections: got %+v, %v, want %d", broken, u.Rows, err, want)
	}
	ledgertest.WantRollups(t, ledgertest.Engine{Query: func(t testing.TB, q string) [][]string { return query(t, pg.OwnerURL(), q) }})
}

// Whatever the role's defaults, a commit is durable when it is acknowledged, and a
// server that hangs in a transaction loses its locks.
func TestSessions(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	s := open(t, pg, ledger.Options{})
	var commit, idle string
	read := func(s *pgledger.Store) {
		t.Helper()
		err := s.Pool().QueryRow(t.Context(), "SELECT current_setting('synchronous_commit'), current_setting('idle_in_transaction_session_timeout')").Scan(&commit, &idle)
		if err != nil {
			t.Fatal(err)
		}
	}
	read(s)
	if idle != "1min" {
		t.Errorf("idle_in_transaction_session_timeout: got %s, want 1min", idle)
	}
	for given, want := range map[string]string{"off": "on", "remote_apply": "remote_apply"} {
		weak, err := pgledger.Open(t.Context(), withParam(pg.AppURL(), "synchronous_commit="+given), ledger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		read(weak)
		if commit != want {
			t.Errorf("synchronous_commit of a URL that says %s: got %s, want %s", given, commit, want)
		}
		if err := weak.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A block that takes longer than the database allows is not tried for ever. Smaller ones are tried, down to
// single reports, and full ones again once nothing is left.
func TestFoldsLessWhereMuchTakesTooLong(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	query(t, pg.OwnerURL(), `CREATE FUNCTION too_long() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled'; END $$;
		CREATE TRIGGER too_long BEFORE INSERT ON blocks FOR EACH ROW WHEN (NEW.reports > 3) EXECUTE FUNCTION too_long();
		SELECT 1`)
	clock := ledgertest.NewClock()
	s := open(t, pg, ledger.Options{Now: clock.Now})
	settle := func(agent string, reports int) {
		t.Helper()
		for seq := range int64(reports) {
			r := ledger.NewReport(agent, 0, seq+1, seq, []ledger.Row{
				{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Admitted: 1},
			}, clock.Now().UnixMilli(), false)
			if receipts, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
				t.Fatalf("settle: %+v, %v", receipts, err)
			}
		}
	}
	settle("a", 20)
	failed, folded := 0, 0
	for folded < 20 {
		n, _, err := s.Fold(t.Context(), clock.Now())
		if folded += n; err != nil {
			if failed++; failed > 13 {
				t.Fatalf("folded %d of 20 reports, then failed %d times: %v", folded, failed, err)
			}
		}
	}
	if n, _, err := s.Fold(t.Context(), clock.Now()); n != 0 || err != nil {
		t.Errorf("fold with nothing to do: got %d, %v", n, err)
	}
	query(t, pg.OwnerURL(), "DROP TRIGGER too_long ON blocks; SELECT 1")
	settle("b", 20)
	if n, _, err := s.Fold(t.Context(), clock.Now()); n != 20 || err != nil {
		t.Errorf("fold when all is well again: got %d, %v, want 20", n, err)
	}
}
