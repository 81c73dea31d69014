package sqlstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/policytest"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(OFF)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "quota.db")+"?"+q.Encode())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := migrations.SQLite(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

func openPostgres(t *testing.T) *sql.DB {
	t.Helper()
	return openPG(t, testenv.Postgres(t))
}

// openPG returns a database as quota_app sees it, with a default that an operator
// might have chosen and that must not matter.
func openPG(t *testing.T, pg *testenv.PG) *sql.DB {
	t.Helper()
	appURL := pg.AppURL()
	if err := migrations.Postgres(t.Context(), pg.OwnerURL()); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(appURL)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["default_transaction_isolation"] = "serializable"
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestSQLite(t *testing.T) {
	policytest.Run(t, func(t *testing.T) policystore.Store { return sqlstore.New(openSQLite(t), sqlstore.SQLite, nil) })
}

func TestPostgres(t *testing.T) {
	policytest.Run(t, func(t *testing.T) policystore.Store { return sqlstore.New(openPostgres(t), sqlstore.Postgres, nil) })
}

// What was decided stays decided: nobody changes a version or an audit row.
func TestAppendOnly(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *sql.DB{"SQLite": openSQLite, "Postgres": openPostgres} {
		t.Run(name, func(t *testing.T) {
			db, engine := open(t), sqlstore.SQLite
			if name == "Postgres" {
				engine = sqlstore.Postgres
			}
			doc, err := policy.Parse("", []byte("plans: {free: {}}\ntenants: [{id: acme, plan: free}]"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sqlstore.New(db, engine, nil).Apply(t.Context(), "ann", doc, 0, false); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlstore.New(db, engine, nil).CloseStatement(t.Context(), "ann", terms.Closed{Tenant: "acme", Number: 1, Period: billing.Period{Name: "p", From: 5, To: 9}}, nil); err != nil {
				t.Fatal(err)
			}
			store := sqlstore.New(db, engine, nil)
			if _, err := store.GiveCredit(t.Context(), "ann", terms.Credit{ID: "c", Tenant: "acme", Currency: "USD", Amount: 5}); err != nil {
				t.Fatal(err)
			}
			next := terms.Closed{Tenant: "acme", Number: 2, Period: billing.Period{Name: "o", From: 9, To: 10}}
			if _, err := store.CloseStatement(t.Context(), "ann", next, nil, billing.Burn{Credit: "c", Before: 5, Paid: 5}); err != nil {
				t.Fatal(err)
			}
			if _, err := store.VoidCredit(t.Context(), "ann", "c", "why"); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Raise(t.Context(), []alert.Found{{Tenant: "acme", Events: []alert.Event{{ID: "a", Alert: "x", Tenant: "acme"}}}}); err != nil {
				t.Fatal(err)
			}
			statements := []string{
				"UPDATE alerts SET used = 1", "DELETE FROM alerts",
				"UPDATE statements SET digest = ''", "DELETE FROM statements",
				// One that leaves a gap, and one that overlaps.
				"INSERT INTO statements VALUES ('acme', 3, 'q', 11, 12, 0, '', '', '', 0, '', 'ann', 0)",
				"INSERT INTO statements VALUES ('acme', 3, 'q', 9, 12, 0, '', '', '', 0, '', 'ann', 0)",
				"UPDATE credits SET amount = 9", "DELETE FROM credits", "UPDATE credit_voids SET at_ms = 1", "DELETE FROM credit_voids", "UPDATE credit_burns SET paid = 0", "DELETE FROM credit_burns",
				"UPDATE policy_versions SET document = ''", "DELETE FROM policy_versions",
				"UPDATE audit_log SET actor = 'nobody'", "DELETE FROM audit_log",
				"UPDATE subscriptions SET plan = ''", "DELETE FROM subscriptions",
				// One that begins before or with another: they would not follow one another.
				"INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ('acme', 1, 'free')",
				"INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ('new', 5, 'free'), ('new', 5, 'free')",
				"INSERT INTO subscriptions (tenant, from_ms, plan) VALUES ('new', 5, 'free'), ('new', 4, 'free')",
			}
			if name == "Postgres" {
				statements = append(statements, "TRUNCATE policy_versions", "TRUNCATE alerts CASCADE", "DELETE FROM alert_deliveries", "TRUNCATE audit_log", "TRUNCATE subscriptions", "TRUNCATE statements", "DROP TABLE audit_log",
					"ALTER TABLE audit_log DISABLE TRIGGER ALL", "DELETE FROM tenants", "DELETE FROM access_keys", "INSERT INTO policy_heads VALUES (2,0,0,0,0,0)")
			}
			for _, s := range statements {
				_, err := db.ExecContext(t.Context(), s)
				if err == nil || !strings.Contains(err.Error(), "append-only") && !strings.Contains(err.Error(), "follow one another") && !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be owner") {
					t.Errorf("%s: got %v, want a refusal", s, err)
				}
			}
		})
	}
}

// Connections that the server ended are replaced: what fails meanwhile says that
// it may be tried again.
func TestConnectionsLost(t *testing.T) {
	pg := testenv.Postgres(t)
	db := openPG(t, pg)
	s := sqlstore.New(db, sqlstore.Postgres, nil)
	if _, err := s.Heads(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := pg.TerminateBackends(); n == 0 {
		t.Fatal("there was no connection to end")
	}
	for attempt := 0; ; attempt++ {
		_, err := s.Heads(t.Context())
		if err == nil {
			return
		}
		if !errors.Is(err, policystore.ErrUnavailable) || attempt > 10 {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
	}
}

// Two servers over one database see each other's changes at once.
func TestTwoServers(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *sql.DB{"SQLite": openSQLite, "Postgres": openPostgres} {
		t.Run(name, func(t *testing.T) {
			db, engine := open(t), sqlstore.SQLite
			if name == "Postgres" {
				engine = sqlstore.Postgres
			}
			a, b := sqlstore.New(db, engine, nil), sqlstore.New(db, engine, nil)
			for i, text := range []string{
				"plans: {one: {limits: [{name: x, rate: 1/s}]}}\ntenants: [{id: acme, plan: one, limits: [{name: x, burst: 9}]}]",
				"plans: {two: {limits: [{name: x, rate: 2/s}]}}\ntenants: [{id: acme, plan: two, limits: [{name: x, burst: 9}]}]",
			} {
				doc, err := policy.Parse("", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.Apply(t.Context(), "ann", doc, int64(i), false); err != nil {
					t.Fatal(err)
				}
				if h, err := b.Heads(t.Context()); err != nil || h.Version != int64(i+1) {
					t.Errorf("the other server's heads: %+v, %v; want version %d", h, err, i+1)
				}
				got, err := b.Tenants(t.Context(), []string{"acme"})
				if err != nil || got[0].Overrides[0].Rate.Units != int64(i+1) {
					t.Errorf("the other server's acme: %+v, %v; want a rate of %d", got, err, i+1)
				}
				if _, err := b.Apply(t.Context(), "bob", doc, int64(i), false); i > 0 && !errors.Is(err, policystore.ErrConflict) {
					t.Errorf("a change made from version %d: %v, want %v", i, err, policystore.ErrConflict)
				}
			}
			if _, err := b.CreateTenant(t.Context(), "bob", "b", "one", ""); !errors.Is(err, policystore.ErrInvalid) {
				t.Errorf("a plan of the version before: %v, want %v", err, policystore.ErrInvalid)
			}
			if _, err := b.CreateTenant(t.Context(), "bob", "b", "two", ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// A database that is restored gives the number of a version that it forgot to another one. Servers that go on
// know it by when it was made.
func TestVersionComesAgain(t *testing.T) {
	const again = "plans: {p: {limits: [{name: x, rate: 2/s}]}, q: {limits: [{name: x, rate: 2/s}]}}"
	for name, open := range map[string]func(*testing.T) (*sql.DB, func(statement string)){
		"SQLite": func(t *testing.T) (*sql.DB, func(string)) {
			db := openSQLite(t)
			return db, func(statement string) {
				if _, err := db.ExecContext(t.Context(), "DROP TRIGGER policy_versions_no_update; "+statement); err != nil {
					t.Fatal(err)
				}
			}
		},
		"Postgres": func(t *testing.T) (*sql.DB, func(string)) {
			pg := testenv.Postgres(t)
			return openPG(t, pg), func(statement string) {
				owner, err := pgx.Connect(t.Context(), pg.OwnerURL())
				if err != nil {
					t.Fatal(err)
				}
				defer owner.Close(t.Context())
				if _, err := owner.Exec(t.Context(), "SET session_replication_role = replica; "+statement); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, tamper := open(t)
			engine := sqlstore.SQLite
			if name == "Postgres" {
				engine = sqlstore.Postgres
			}
			s := sqlstore.New(db, engine, nil)
			applied(t, s, "plans: {p: {limits: [{name: x, rate: 1/s}]}}\ntenants: [{id: acme, plan: p, limits: [{name: x, burst: 9}]}]")
			rate := func(want int64) {
				t.Helper()
				got, err := s.Tenants(t.Context(), []string{"acme"})
				if err != nil || got[0].Overrides[0].Rate.Units != want {
					t.Errorf("acme: %+v, %v; want a rate of %d", got, err, want)
				}
			}
			rate(1)
			tamper("UPDATE policy_versions SET document = '" + again + "', created_ms = created_ms + 1 WHERE number = 1")
			rate(2)
			if _, err := s.CreateTenant(t.Context(), "ann", "b", "q", ""); err != nil {
				t.Errorf("a tenant on a plan of the version that came again: %v", err)
			}
		})
	}
}

// A tenant whose overrides cannot be made out is told of, and keeps no other from being read.
func TestFaultyTenants(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *sql.DB{"SQLite": openSQLite, "Postgres": openPostgres} {
		t.Run(name, func(t *testing.T) {
			db, engine := open(t), sqlstore.SQLite
			if name == "Postgres" {
				engine = sqlstore.Postgres
			}
			s := sqlstore.New(db, engine, nil)
			applied(t, s, "plans: {p: {limits: [{name: x, rate: 1/s}]}}\ntenants: [{id: a, plan: p}, {id: b, plan: p, limits: [{name: x, burst: 9}]}, {id: c, plan: p, limits: [{name: x, burst: 9}]}]")
			if _, err := db.ExecContext(t.Context(), `UPDATE tenants SET overrides = '[{"name": "gone", "burst": 9}]' WHERE id = 'b'`); err != nil {
				t.Fatal(err)
			}
			check := func(what string, all []limit.Tenant, err error) {
				t.Helper()
				var faulty policystore.FaultyTenants
				if !errors.As(err, &faulty) || len(faulty) != 1 || faulty["b"] == nil || !errors.Is(err, policystore.ErrInvalid) || !strings.Contains(err.Error(), "b") {
					t.Errorf("%s: %v", what, err)
				}
				if len(all) != 3 || all[1].ID != "b" || len(all[1].Overrides) != 0 || len(all[2].Overrides) != 1 || !all[2].Exists {
					t.Errorf("%s: %+v", what, all)
				}
			}
			all, err := s.Tenants(t.Context(), []string{"a", "b", "c"})
			check("by id", all, err)
			all, err = s.TenantPage(t.Context(), "", 10)
			check("a page", all, err)
			all, through, err := s.TenantChanges(t.Context(), 0, 10)
			check("changes", all, err)
			if through != 3 {
				t.Errorf("changes are through %d, want 3", through)
			}
		})
	}
}

// Where this server cannot read the policy in force, for a later release wrote it, tenants with overrides cannot be
// made out; the others can.
func TestTenantsUnderAPolicyOfALaterRelease(t *testing.T) {
	db := openSQLite(t)
	applied(t, sqlstore.New(db, sqlstore.SQLite, nil), "plans: {p: {limits: [{name: x, rate: 1/s}]}}\ntenants: [{id: a, plan: p}, {id: b, plan: p, limits: [{name: x, burst: 9}]}]")
	for _, statement := range []string{"DROP TRIGGER policy_versions_no_update", "UPDATE policy_versions SET document = '{later: true}'"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	all, err := sqlstore.New(db, sqlstore.SQLite, nil).Tenants(t.Context(), []string{"a", "b"})
	var faulty policystore.FaultyTenants
	if !errors.As(err, &faulty) || len(faulty) != 1 || faulty["b"] == nil || !strings.Contains(err.Error(), "stored version 1 does not hold any more") ||
		len(all) != 2 || !all[0].Exists || all[0].Plan != "p" || all[1].ID != "b" {
		t.Errorf("got %+v, %v, want a, and that b cannot be made out", all, err)
	}
}

// What Standings says of many tenants is what is said of each.
func TestStandings(t *testing.T) {
	stores(t, func(t *testing.T, s *sqlstore.Store) {
		ctx := t.Context()
		applied(t, s, "plans: {p: {price: {monthly: 1.00 USD}}, q: {}}\ntenants: [{id: a, plan: p, spending_cap: {amount: 5.00 USD, at: stop}}, {id: b, plan: q, billing: {zone: Asia/Kolkata}}, {id: c, plan: q}]")
		if _, err := s.SetTenantPlan(ctx, "ann", "b", "p"); err != nil {
			t.Fatal(err)
		}
		for i := range int64(5) {
			if _, err := s.CloseStatement(ctx, "ann", terms.Closed{Tenant: "a", Number: i + 1, Period: billing.Period{Name: fmt.Sprint(i), From: i, To: i + 1}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"z", "y"} {
			if _, err := s.GiveCredit(ctx, "ann", terms.Credit{ID: id, Tenant: "b", Currency: "USD", Amount: 5}); err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.Standings(ctx, []string{"c", "nobody", "a", "b"})
		if err != nil || len(all) != 4 {
			t.Fatal(all, err)
		}
		for _, got := range all {
			if got.ID == "nobody" {
				if len(got.Subscriptions) != 0 || got.Err != nil {
					t.Errorf("nobody: %+v", got)
				}
				continue
			}
			want, err := s.Subscriber(ctx, got.ID)
			if err != nil || !reflect.DeepEqual(got.Subscriber, want) {
				t.Errorf("%s: %+v, want %+v, %v", got.ID, got.Subscriber, want, err)
			}
			closed, err := s.Statements(ctx, got.ID, 0, terms.MaxStanding)
			if err != nil || !slices.Equal(got.Closed, closed) {
				t.Errorf("%s: closed %+v, want %+v, %v", got.ID, got.Closed, closed, err)
			}
			credits, err := s.Credits(ctx, got.ID)
			if err != nil || !slices.Equal(got.Credits, credits) {
				t.Errorf("%s: credits %+v, want %+v, %v", got.ID, got.Credits, credits, err)
			}
		}
		if len(all[2].Closed) != terms.MaxStanding || len(all[3].Credits) != 2 {
			t.Errorf("closed %d, credits %d", len(all[2].Closed), len(all[3].Credits))
		}
	})
}
