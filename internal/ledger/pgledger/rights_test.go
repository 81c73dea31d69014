package pgledger_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/ledgertest"
	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/migrations"
)

// settled is a ledger with a row in every table of usage that is a fact, and the names of all facts and their partitions.
func settled(t *testing.T) (pg *testenv.PG, facts []string) {
	t.Helper()
	pg = testenv.Postgres(t)
	migrate(t, pg)
	clock := ledgertest.NewClock()
	s := open(t, pg, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if r.Tenant == "unknown" {
			return errors.New("unknown tenant")
		}
		return nil
	}})
	r := ledger.NewReport("a", 0, 1, 0, []ledger.Row{
		{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Admitted: 1},
		{Slot: ledgertest.Start.Unix(), Tenant: "unknown", Limit: "requests", Admitted: 1},
	}, ledgertest.Start.UnixMilli(), false)
	if receipts, err := s.Settle(t.Context(), []ledger.Report{r}); err != nil || receipts[0].Status != ledger.Settled {
		t.Fatalf("settle: %v, %v", receipts, err)
	}
	if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 1 {
		t.Fatalf("fold: %d, %v", n, err)
	}
	c, err := ledger.NewCorrection(ledger.KindAdjust, "k", false, []ledger.Row{{Slot: ledgertest.Start.Unix(), Tenant: "acme", Limit: "requests", Admitted: 1}}, "r")
	if err == nil {
		_, err = s.Books().Correct(t.Context(), "me", c)
	}
	if err == nil {
		err = s.Books().Discard(t.Context(), "me", "r", []int64{1})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range query(t, pg.OwnerURL(), `SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')
		AND relname ~ ('^(reports|entries|blocks|keys|quarantine|corrections|resolutions|retired|archives|archived_reports|archived_settled|archived_corrections|'
		|| 'policy_versions|audit_log|statements|subscriptions|payers|credits|credit_voids|credit_burns|alerts)(_[0-9]+)?$') ORDER BY 1`) {
		facts = append(facts, row[0])
	}
	// Twenty-one tables and four months of partitions of two.
	if len(facts) != 21+2*(ledger.MonthsBack+1+ledger.MonthsAhead) {
		t.Fatalf("tables of facts: got %v", facts)
	}
	return pg, facts
}

// upsert puts rows of a table in the place of themselves.
func upsert(t *testing.T, pg *testenv.PG, table string) string {
	t.Helper()
	key := query(t, pg.OwnerURL(), `SELECT string_agg(a.attname, ', ') FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
		WHERE i.indisprimary AND i.indrelid = '`+table+"'::regclass")[0][0]
	last := query(t, pg.OwnerURL(), "SELECT attname FROM pg_attribute WHERE attrelid = '"+table+"'::regclass AND attnum > 0 ORDER BY attnum DESC")[0][0]
	return "INSERT INTO " + table + " OVERRIDING SYSTEM VALUE SELECT * FROM " + table + " ON CONFLICT (" + key + ") DO UPDATE SET " + last + " = excluded." + last
}

// partition is the name of one.
var partition = regexp.MustCompile(`_[0-9]{6}$`)

// state is the tables that are not facts: what is in them changes, or goes.
var state = strings.Fields(`access_keys alert_deliveries alert_marks corrections_queue frontier leaders leases months override_edges plan_changes
	policy_heads policy_switches queue recorders rollups schema_version server_secrets settled tenants touched webhook_outages`)

// Every table is of facts, with their guards, or of state: a new one is looked at. Of facts nobody but their owner may
// change or take away a row.
func TestEveryTableIsGuarded(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	var others []string
	for _, row := range query(t, pg.OwnerURL(), `SELECT c.relname,
			(SELECT count(*) FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname IN ('append_only', 'no_truncate') AND g.tgenabled = 'O'),
			has_table_privilege('quota_app', c.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES') OR has_any_column_privilege('quota_app', c.oid, 'UPDATE')
		FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1`) {
		table, guards, changes := row[0], row[1], row[2]
		switch {
		case guards == "0" && !partition.MatchString(table):
			others = append(others, table)
		case guards != "2":
			t.Errorf("%s: got %s of its two guards", table, guards)
		case changes != "f" && changes != "false":
			t.Errorf("%s: quota_app may change it", table)
		}
	}
	if !slices.Equal(others, state) {
		t.Errorf("tables without guards: got %v, want those of state, %v", others, state)
	}
}

// The application role cannot change a fact, nor give itself the right to.
func TestAppRoleCannotChangeFacts(t *testing.T) {
	pg, facts := settled(t)
	before := rights(t, pg)
	app := connect(t, pg.AppURL())
	defer app.Close(t.Context())
	refused := func(statement string) {
		t.Helper()
		_, err := app.Exec(t.Context(), statement)
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "42501" {
			t.Errorf("%s: got %v, want permission denied", statement, err)
		}
	}
	for _, fact := range facts {
		column := query(t, pg.OwnerURL(), "SELECT attname FROM pg_attribute WHERE attrelid = '"+fact+"'::regclass AND attnum > 0 AND attidentity = '' ORDER BY attnum DESC")[0][0]
		for _, statement := range []string{
			"UPDATE ? SET " + column + " = " + column,
			"DELETE FROM ?",
			upsert(t, pg, fact),
			"TRUNCATE ?",
			"ALTER TABLE ? DISABLE TRIGGER ALL",
			"ALTER TABLE ? DISABLE TRIGGER append_only",
			"ALTER TABLE ? OWNER TO quota_app",
			"ALTER TABLE ? ADD COLUMN more int",
			"DROP TABLE ?",
			"CREATE RULE r AS ON INSERT TO ? DO INSTEAD NOTHING",
			"CREATE TRIGGER mine BEFORE INSERT ON ? EXECUTE FUNCTION append_only()",
		} {
			refused(strings.ReplaceAll(statement, "?", fact))
		}
		// A GRANT by one who may not only warns: what counts is what it changed.
		_, _ = app.Exec(t.Context(), "GRANT ALL ON "+fact+" TO quota_app")
		_, _ = app.Exec(t.Context(), "GRANT ALL ON "+fact+" TO PUBLIC")
		if partition.MatchString(fact) {
			refused("SELECT * FROM " + fact)
			refused("INSERT INTO " + fact + " SELECT * FROM " + fact)
		}
	}
	if after := rights(t, pg); after != before {
		t.Errorf("rights after GRANT: got\n%swant\n%s", after, before)
	}
	for _, statement := range []string{
		"CREATE TABLE mine (month date)",
		"ALTER TABLE entries ATTACH PARTITION mine FOR VALUES FROM ('2030-01-01') TO ('2030-02-01')",
		"ALTER TABLE entries DETACH PARTITION entries_202603",
		"CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE OR REPLACE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"CREATE SCHEMA mine",
		"DROP FUNCTION make_months(date, date)",
		"DROP FUNCTION rebuild_rollups(bigint, bigint)",
		"CREATE OR REPLACE FUNCTION rebuild_rollups(from_hour bigint, to_hour bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
		"DELETE FROM frontier", "TRUNCATE frontier", "DELETE FROM rollups", "TRUNCATE rollups", "TRUNCATE queue", "TRUNCATE corrections_queue",
		"UPDATE corrections_queue SET number = 2", "UPDATE queue SET seq = seq", "UPDATE touched SET tenant = tenant",
		"INSERT INTO months VALUES ('2040-01-01')", "DELETE FROM months",
		"UPDATE schema_version SET version_id = 0",
		"SET ROLE quota_owner",
		"SET session_replication_role = replica",
		"ALTER ROLE quota_app SUPERUSER", "GRANT quota_owner TO quota_app",
		"SELECT pg_read_file('pg_hba.conf')",
	} {
		if strings.Contains(statement, "ATTACH PARTITION mine") {
			// There is nothing of its own to attach: it cannot even make a table.
			if _, err := app.Exec(t.Context(), statement); err == nil {
				t.Errorf("%s: got no error", statement)
			}
			if _, err := app.Exec(t.Context(), "CREATE TEMPORARY TABLE mine (LIKE entries)"); err == nil {
				refused("ALTER TABLE entries ATTACH PARTITION pg_temp.mine FOR VALUES FROM ('2030-01-01') TO ('2030-02-01')")
			}
			continue
		}
		refused(statement)
	}
	// Nor can it have roll-ups dropped whose entries are gone: only months that are there are made again.
	for _, hours := range []string{"0, 3600", "3600, 3600", "1, 3601", "1774915200, 1774915200 + 33 * 86400", "1774915200, 1902700800"} {
		if _, err := app.Exec(t.Context(), "SELECT rebuild_rollups("+hours+")"); err == nil || !strings.Contains(err.Error(), "out of range") {
			t.Errorf("rebuild_rollups(%s): got %v, want it refused", hours, err)
		}
	}
	if got := query(t, pg.OwnerURL(), "SELECT count(*) FROM pg_class WHERE relowner = 'quota_app'::regrole AND relnamespace = 'public'::regnamespace"); got[0][0] != "0" {
		t.Errorf("quota_app owns %s things, want none", got[0][0])
	}
}

func rights(t *testing.T, pg *testenv.PG) string {
	t.Helper()
	var b strings.Builder
	for _, row := range query(t, pg.OwnerURL(), "SELECT relname, coalesce(relacl::text, '') FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1") {
		b.WriteString(strings.Join(row, " ") + "\n")
	}
	return b.String()
}

// Triggers stop the owner too: a mistake is not enough to change a fact.
func TestOwnerCannotChangeFactsByMistake(t *testing.T) {
	pg, facts := settled(t)
	owner := connect(t, pg.OwnerURL())
	defer owner.Close(t.Context())
	for _, fact := range facts {
		column := query(t, pg.OwnerURL(), "SELECT attname FROM pg_attribute WHERE attrelid = '"+fact+"'::regclass AND attnum > 0 AND attidentity = '' ORDER BY attnum DESC")[0][0]
		statements := []string{"TRUNCATE " + fact + " CASCADE"} // what refers to it, too
		if n := query(t, pg.OwnerURL(), "SELECT count(*) FROM "+fact)[0][0]; n != "0" {
			statements = append(statements, "UPDATE "+fact+" SET "+column+" = "+column, "DELETE FROM "+fact, upsert(t, pg, fact))
		}
		for _, statement := range statements {
			if _, err := owner.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: got %v, want it refused", statement, err)
			}
		}
	}
}

// Months are made by the owner's function for whoever serves, without gaps.
func TestMonthsAreMadeAhead(t *testing.T) {
	pg := testenv.Postgres(t)
	migrate(t, pg)
	clock := ledgertest.NewClock()
	s := open(t, pg, ledger.Options{Now: clock.Now})
	months := func() string {
		return query(t, pg.OwnerURL(), "SELECT string_agg(to_char(month, 'YYYY-MM'), ' ' ORDER BY month) FROM months")[0][0]
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := months(), "2026-02 2026-03 2026-04 2026-05"; got != want {
		t.Errorf("months: got %s, want %s", got, want)
	}
	clock.Advance(100 * 24 * time.Hour) // the servers were off until July
	if _, _, err := s.Fold(t.Context(), clock.Now()); err != nil {
		t.Fatal(err)
	}
	if got, want := months(), "2026-02 2026-03 2026-04 2026-05 2026-06 2026-07 2026-08 2026-09"; got != want {
		t.Errorf("months: got %s, want %s", got, want)
	}
	app := connect(t, pg.AppURL())
	defer app.Close(t.Context())
	for _, months := range []string{
		"'2000-01-01', '2026-01-01'", "'2026-03-01', '2026-02-01'", "(now() - interval '6 years')::date, now()::date", "now()::date, (now() + interval '4 years')::date",
		"'2100-01-01', '2100-02-01'",
	} {
		if _, err := app.Exec(t.Context(), "SELECT make_months("+months+")"); err == nil || !strings.Contains(err.Error(), "out of range") {
			t.Errorf("months %s: got %v, want it refused", months, err)
		}
	}
	if got := query(t, pg.OwnerURL(), "SELECT count(*) FROM pg_class WHERE relispartition AND relname LIKE '%default%'"); got[0][0] != "0" {
		t.Errorf("got %s default partitions, want none", got[0][0])
	}
}

// Migrations may run again, at once from several servers, in a schema of the URL's,
// and by a role that is no superuser.
func TestMigrations(t *testing.T) {
	pg := testenv.Postgres(t)
	urls := []string{
		pg.OwnerURL(), pg.OwnerURL(),
		withParam(pg.OwnerURL(), "search_path=other"), withParam(pg.OwnerURL(), "search_path=other"),
	}
	errs := make(chan error, len(urls))
	for _, url := range urls {
		go func() { errs <- migrations.Postgres(t.Context(), url) }()
	}
	for range urls {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := query(t, pg.OwnerURL(), "SELECT count(*) FROM pg_class WHERE relname = 'frontier' AND relowner = 'quota_owner'::regrole"); got[0][0] != "2" {
		t.Errorf("got %s ledgers of quota_owner's, want one in each schema", got[0][0])
	}
	admin := connect(t, pg.OwnerURL())
	defer admin.Close(t.Context())
	name := "deploy_" + strings.ToLower(t.Name())
	for _, statement := range []string{
		"CREATE ROLE " + name + " LOGIN CREATEROLE PASSWORD 'deploy'",
		"DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO " + name + "', current_database()); END $$",
	} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, statement := range []string{"DROP OWNED BY " + name, "DROP ROLE " + name} {
			if _, err := admin.Exec(t.Context(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	}()
	url := withParam(pg.URL(name, "deploy"), "search_path=third")
	for range 2 {
		if err := migrations.Postgres(t.Context(), url, migrations.AppPassword(testenv.AppPassword)); err != nil {
			t.Fatalf("as a role that may create roles: %v", err)
		}
	}
	s := open(t, pg, ledger.Options{})
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// A database that cannot hold every name is refused before it holds anything.
func TestMigrationsWantUTF8(t *testing.T) {
	pg := testenv.Postgres(t)
	owner := connect(t, pg.OwnerURL())
	defer owner.Close(t.Context())
	name := query(t, pg.OwnerURL(), "SELECT current_database()")[0][0]
	latin := name + "_latin1"
	if _, err := owner.Exec(t.Context(), "CREATE DATABASE "+latin+" ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := owner.Exec(t.Context(), "DROP DATABASE "+latin); err != nil {
			t.Error(err)
		}
	}()
	url := strings.Replace(pg.OwnerURL(), name, latin, 1)
	if err := migrations.Postgres(t.Context(), url); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("migrations of a LATIN1 database: got %v, want it refused", err)
	}
}

func withParam(url, param string) string {
	if strings.Contains(url, "?") {
		return url + "&" + param
	}
	return url + "?" + param
}

// A database without the schema is a reason, and is served once it has one.
func TestPingBeforeMigrations(t *testing.T) {
	pg := testenv.Postgres(t)
	s := open(t, pg, ledger.Options{})
	if err := s.Ping(t.Context()); !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "months") {
		t.Errorf("ping: got %v, want the missing table", err)
	}
	migrate(t, pg)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping after migrations: %v", err)
	}
}
