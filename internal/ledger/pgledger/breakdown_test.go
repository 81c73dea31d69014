package pgledger_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/testenv"
)

// filled is a ledger with roll-ups of every hour of the last days for each tenant, and
// entries of the last of them.
func filled(t testing.TB, pg *testenv.PG, tenants, days int) (from, to time.Time) {
	t.Helper()
	migrate(t, pg)
	to = time.Now().UTC().Truncate(24 * time.Hour)
	from = to.AddDate(0, 0, -days)
	query(t, pg.OwnerURL(), fmt.Sprintf(`
		SET synchronous_commit = off;
		SELECT make_months((now() - interval '1 month')::date, now()::date);
		INSERT INTO blocks VALUES (1, '', '', 1, 1, '', 0);
		INSERT INTO keys SELECT md5(i::text)::uuid, 'tenant-' || i, 'requests', 'requests', 1, '' FROM generate_series(1, %d) AS i;
		ALTER TABLE rollups DROP CONSTRAINT rollups_pkey; DROP INDEX rollups_hour; -- made again below: millions of rows are in sooner so
		INSERT INTO rollups SELECT k.key, h, 1000, 10, 5 FROM generate_series(%d, %d, 3600) AS h, (SELECT key FROM keys ORDER BY key) AS k;
		ALTER TABLE rollups ADD PRIMARY KEY (key, hour); CREATE INDEX rollups_hour ON rollups (hour);
		INSERT INTO entries (month, height, n, slot, key, admitted, overage, denied)
			SELECT date_trunc('month', to_timestamp(h) AT TIME ZONE 'UTC')::date, 1, row_number() OVER (), h, k.key, 1000, 10, 5
			FROM generate_series(%d, %d, 3600) AS h, keys AS k;
		ANALYZE`, tenants, from.Unix(), to.Unix()-3600, to.Unix()-86_400, to.Unix()-3600))
	return from, to
}

// asked are the questions of a month that must be answered from the right index.
func asked(t testing.TB, from, to time.Time) map[string]ledger.BreakdownQuery {
	t.Helper()
	kolkata, err := time.LoadLocation("Asia/Kolkata") // whose days begin within hours
	if err != nil {
		t.Fatal(err)
	}
	return map[string]ledger.BreakdownQuery{
		"one tenant by day":     {Tenant: "tenant-7", From: from, To: to, Every: ledger.EveryDay},
		"one tenant in Kolkata": {Tenant: "tenant-7", From: from, To: to, Every: ledger.EveryDay, Zone: kolkata},
		"one tenant by hour":    {Tenant: "tenant-7", From: from, To: to, Every: ledger.EveryHour},
		"one tenant":            {Tenant: "tenant-7", From: from, To: to, By: []string{ledger.DimMeter}},
		"all tenants":           {From: from, To: to, By: []string{ledger.DimTenant}},
		"top ten":               {From: from, To: to, By: []string{ledger.DimTenant}, Top: 10, TopBy: "admitted"},
	}
}

// sifted are entries that were read one by one, to leave most of them out.
var sifted = regexp.MustCompile(`Seq Scan on entries\S*[^\n]*\n[^\n]*Filter[^\n]*\n\s*Rows Removed`)

// analyzed is a query's plan, and what it did.
func analyzed(t *testing.T, pg *testenv.PG, text string) string {
	t.Helper()
	var plan []string
	for _, line := range query(t, pg.AppURL(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+text) {
		plan = append(plan, line[0])
	}
	return strings.Join(plan, "\n")
}

// rowsRead is how many roll-ups and entries a plan read.
func rowsRead(plan string) (n int64) {
	for _, m := range regexp.MustCompile(`Scan.* on (?:rollups|entries\S*)(?: \S+)? \(actual rows=(\d+) loops=(\d+)`).FindAllStringSubmatch(plan, -1) {
		rows, _ := strconv.ParseInt(m[1], 10, 64)
		loops, _ := strconv.ParseInt(m[2], 10, 64)
		n += rows * loops
	}
	return n
}

// A statement reads the tenant's roll-ups of the period, and entries of the hours that something divides. To
// find late usage it reads at most the tenant's entries in earlier partitions.
func TestSealedPlans(t *testing.T) {
	pg := testenv.Postgres(t)
	_, to := filled(t, pg, 1000, 34)
	q := ledger.SealedQuery{Tenant: "tenant-7", Since: 1, From: to.AddDate(0, 0, -30).Unix(), To: to.Unix(), Hourly: true, Cut: []int64{to.Unix() - 7200}}
	usage, _ := sqlbooks.SealedSQL(sqlbooks.Postgres, &q, 2)
	q.From = to.Unix() - 7200
	_, late := sqlbooks.SealedSQL(sqlbooks.Postgres, &q, 2)
	for name, p := range map[string]struct {
		text    string
		most    int64
		indexes []string
	}{
		"usage": {usage, 24 * 30, []string{"keys_tenant", "rollups_pkey", "_key_slot_idx"}},
		"late":  {late, 22, []string{"keys_tenant"}},
	} {
		plan := analyzed(t, pg, strings.ReplaceAll(p.text, "$1", "'tenant-7'"))
		for _, index := range p.indexes {
			if !strings.Contains(plan, index) {
				t.Errorf("%s does not use %s:\n%s", name, index, plan)
			}
		}
		if read := rowsRead(plan); read > p.most || sifted.MatchString(plan) {
			t.Errorf("%s reads %d rows, want at most %d:\n%s", name, read, p.most, plan)
		}
	}
}

// A look of alerts at some tenants reads their roll-ups of the month, and entries of the hour that an edge
// divides. It reads nothing of other tenants.
func TestHourlyPlans(t *testing.T) {
	pg := testenv.Postgres(t)
	_, to := filled(t, pg, 1000, 34)
	q := ledger.HourlyQuery{From: to.AddDate(0, 0, -30).Unix(), To: to.Unix(), Metered: true, Edges: []int64{to.Unix() - 7200 + 300}}
	text := strings.NewReplacer("$1", "ARRAY['tenant-7', 'tenant-70', 'tenant-700']", "$2", "''").Replace(sqlbooks.HourlySQL(sqlbooks.Postgres, &q))
	plan := analyzed(t, pg, text)
	for _, index := range []string{"keys_tenant", "rollups_pkey", "_key_slot_idx"} {
		if !strings.Contains(plan, index) {
			t.Errorf("it does not use %s:\n%s", index, plan)
		}
	}
	if read := rowsRead(plan); read == 0 || read > 3*24*30 || sifted.MatchString(plan) {
		t.Errorf("it reads %d rows, want at most %d:\n%s", read, 3*24*30, plan)
	}
}

// A month's report of one tenant reads that tenant's keys and roll-ups, and none of another. One of all tenants
// reads the month's roll-ups, and no entries. An index that vanished would show here.
func TestBreakdownPlans(t *testing.T) {
	pg := testenv.Postgres(t)
	_, to := filled(t, pg, 1000, 34)
	from := to.AddDate(0, 0, -30)
	for name, q := range asked(t, from, to) {
		indexes := []string{"keys_tenant", "rollups_pkey"}
		if q.Tenant == "" { // of a few days, for most of the table is sooner read whole
			q.From, indexes = to.AddDate(0, 0, -3), []string{"rollups_hour"}
		}
		chunks, err := q.Chunks(q.From.Unix(), q.To.Unix())
		if err != nil {
			t.Fatal(err)
		}
		if q.Tenant != "" && len(chunks) != 1 {
			t.Errorf("%s takes %d queries, want one", name, len(chunks))
		}
		text, args := sqlbooks.BreakdownSQL(sqlbooks.Postgres, &q, chunks[0], 1, true)
		for i, a := range args {
			text = strings.ReplaceAll(text, "$"+strconv.Itoa(i+1), "'"+a.(string)+"'")
		}
		whole := analyzed(t, pg, text)
		read := rowsRead(whole)
		most := int64(1000 * 24 * 3)
		if q.Tenant != "" {
			most = 24 * 30
		}
		for _, index := range indexes {
			if !strings.Contains(whole, index) {
				t.Errorf("%s does not use %s:\n%s", name, index, whole)
			}
		}
		if read > most || sifted.MatchString(whole) {
			t.Errorf("%s reads %d rows, want at most %d:\n%s", name, read, most, whole)
		}
	}
}

// BenchmarkBreakdown is a month's report where each of many tenants has a roll-up an hour.
// QUOTA_BENCH_TENANTS and QUOTA_BENCH_DAYS say how many (10,000 and 31).
func BenchmarkBreakdown(b *testing.B) {
	number := func(name string, n int) int {
		if s, err := strconv.Atoi(os.Getenv(name)); err == nil {
			n = s
		}
		return n
	}
	pg := testenv.Postgres(b)
	_, to := filled(b, pg, number("QUOTA_BENCH_TENANTS", 10_000), number("QUOTA_BENCH_DAYS", 31))
	s := open(b, pg, ledger.Options{})
	for name, q := range asked(b, to.AddDate(0, 0, -31), to) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				n := 0
				if _, err := s.Books().Breakdown(b.Context(), q, func(*ledger.BreakdownRow) error { n++; return nil }, nil); err != nil || n == 0 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
