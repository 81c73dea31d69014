package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// reportTenants is the number of tenants for the figures of reports and exports. Each has a roll-up an hour, and an
// entry in each of the last hours.
const reportTenants = 10_000

// reports asks a ledger of a year for a month's reports through the server. SQL writes the rows that folds would have
// written, in their order: hour after hour.
func reports(ctx context.Context, o options) (err error) {
	s, err := open(ctx, time.Hour)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	to := time.Now().UTC().Truncate(24 * time.Hour)
	if err := s.fill(ctx, to, o.days, 24); err != nil {
		return err
	}
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	usage := quotav1.NewUsageServiceClient(conn)
	month := func(q *quotav1.ListBreakdownRequest) *quotav1.ListBreakdownRequest {
		q.ToMs = to.AddDate(0, 0, -min(60, o.days-31)).UnixMilli()
		q.FromMs = time.UnixMilli(q.ToMs).UTC().AddDate(0, 0, -31).UnixMilli()
		q.PageSize = 1000
		return q
	}
	for _, r := range []struct {
		name string
		of   *quotav1.ListBreakdownRequest
	}{
		{"one tenant", month(&quotav1.ListBreakdownRequest{By: "meter"})},
		{"one tenant by day", month(&quotav1.ListBreakdownRequest{By: "meter", Every: quotav1.ListBreakdownRequest_EVERY_DAY})},
		{"one tenant by day, Kolkata", month(&quotav1.ListBreakdownRequest{By: "meter", Every: quotav1.ListBreakdownRequest_EVERY_DAY, Zone: "Asia/Kolkata"})},
		{"one tenant by hour", month(&quotav1.ListBreakdownRequest{By: "meter", Every: quotav1.ListBreakdownRequest_EVERY_HOUR})},
		{"all tenants, first page", month(&quotav1.ListBreakdownRequest{By: "tenant"})},
		{"the ten with the most", month(&quotav1.ListBreakdownRequest{By: "tenant", Top: 10})},
	} {
		var took []time.Duration
		times := 11
		if r.of.By == "tenant" {
			times = 3 // seconds each
		}
		for i := range times {
			if r.of.By == "meter" { // another each time, whose rows nobody has read
				r.of.Tenant = "tenant-" + strconv.Itoa(1+(i*977+len(r.name)*31)%reportTenants)
			}
			begun := time.Now()
			got, err := usage.ListBreakdown(ctx, r.of)
			if err == nil && len(got.Rows) == 0 {
				err = errors.New("no rows")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			took = append(took, time.Since(begun))
		}
		first := took[0]
		slices.Sort(took)
		fmt.Printf("%-28s first %9s, of %2d: median %9s, longest %9s\n", r.name, first.Round(100*time.Microsecond), times,
			took[len(took)/2].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond))
	}
	return s.exported(ctx, usage, "all tenants of the month", &quotav1.ExportBreakdownRequest{Breakdown: month(&quotav1.ListBreakdownRequest{By: "tenant"})})
}

// export writes files of entries by slot through the server, in each format. Without another number there are ten
// million entries.
func export(ctx context.Context, o options) (err error) {
	s, err := open(ctx, time.Hour)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	to := time.Now().UTC().Truncate(24 * time.Hour)
	hours := o.export * 1_000_000 / reportTenants
	if err := s.fill(ctx, to, 0, hours); err != nil {
		return err
	}
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	usage := quotav1.NewUsageServiceClient(conn)
	for _, format := range strings.Split(o.formats, ",") {
		number, ok := quotav1.ExportBreakdownRequest_Format_value["FORMAT_"+strings.ToUpper(format)]
		if !ok {
			return fmt.Errorf("-formats has %q; allowed are csv, jsonl and parquet", format)
		}
		err := s.exported(ctx, usage, "entries by slot as "+format, &quotav1.ExportBreakdownRequest{Format: quotav1.ExportBreakdownRequest_Format(number), Breakdown: &quotav1.ListBreakdownRequest{
			By: "tenant,limit,meter", Every: quotav1.ListBreakdownRequest_EVERY_SLOT, FromMs: to.Add(-time.Duration(hours) * time.Hour).UnixMilli(), ToMs: to.UnixMilli(),
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill writes roll-ups of so many days, and entries of the last hours of them.
func (s *site) fill(ctx context.Context, to time.Time, days, exportHours int) error {
	begun := time.Now()
	from := to.AddDate(0, 0, -days)
	first := from
	if at := to.Add(-time.Duration(exportHours) * time.Hour); at.Before(first) {
		first = at
	}
	var statements []string
	add := func(format string, args ...any) { statements = append(statements, fmt.Sprintf(format, args...)) }
	add(`SET synchronous_commit = off; SET maintenance_work_mem = '512MB';
		SELECT make_months('%s', now()::date)`, first.Format(time.DateOnly))
	add("INSERT INTO blocks (height, previous, hash, reports, entries, sources, folded_ms) VALUES (1, '', '\\x01', 1, 1, '', 0)")
	add("INSERT INTO keys SELECT md5(i::text)::uuid, 'tenant-' || i, 'requests', 'requests', 1, '' FROM generate_series(1, %d) AS i", reportTenants)
	add("ALTER TABLE rollups DROP CONSTRAINT rollups_pkey; DROP INDEX rollups_hour") // made again below: sooner so
	hours := func(from, to int64) string {
		return fmt.Sprintf("generate_series(%d, %d, 3600) AS h, (SELECT key FROM keys ORDER BY key) AS k", from, to-3600)
	}
	for at := from; at.Before(to); at = at.AddDate(0, 1, 0) {
		next := at.AddDate(0, 1, 0)
		if next.After(to) {
			next = to
		}
		add("INSERT INTO rollups SELECT k.key, h, 1000, 10, 5 FROM %s", hours(at.Unix(), next.Unix()))
	}
	if days == 0 { // the range that there is usage of
		add("INSERT INTO rollups SELECT k.key, h, 1000, 10, 5 FROM (VALUES (%d::bigint), (%d::bigint)) AS hours(h), keys AS k",
			to.Add(-time.Duration(exportHours)*time.Hour).Unix(), to.Add(-time.Hour).Unix())
	}
	add("ALTER TABLE rollups ADD PRIMARY KEY (key, hour) WITH (fillfactor = 70)") // as full as inserts leave it, at 10,000 places at once
	add("CREATE INDEX rollups_hour ON rollups (hour)")
	add("ALTER TABLE entries DROP CONSTRAINT entries_pkey; DROP INDEX entries_slot; DROP INDEX entries_key")
	add(`INSERT INTO entries (month, height, n, slot, key, admitted, overage, denied)
		SELECT date_trunc('month', to_timestamp(h) AT TIME ZONE 'UTC')::date, 1, row_number() OVER (), h, k.key, 1000, 10, 5 FROM %s`,
		hours(to.Unix()-int64(exportHours)*3600, to.Unix()))
	add("ALTER TABLE entries ADD PRIMARY KEY (height, n, month)")
	add("CREATE INDEX entries_slot ON entries (slot)")
	add("CREATE INDEX entries_key ON entries (key, slot)")
	add("VACUUM ANALYZE rollups")
	add("VACUUM ANALYZE entries")
	add("ANALYZE keys")
	for _, statement := range statements {
		if _, err := s.reader.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%.60s: %w", statement, err)
		}
	}
	rows, err := s.ask(ctx, "SELECT reltuples::bigint FROM pg_class WHERE relname = 'rollups'")
	if err != nil {
		return err
	}
	size, err := s.ask(ctx, "SELECT pg_total_relation_size('rollups')")
	fmt.Printf("%d tenants, %d days: %.1f million roll-ups, %.1f GB with their indexes, and %.0f million entries; written in %s\n",
		reportTenants, days, float64(rows)/1e6, float64(size)/1e9, float64(reportTenants*exportHours)/1e6, time.Since(begun).Round(time.Second))
	return err
}

// exported takes a file and prints how fast it came. It also prints how much memory this process had at most beyond
// what it had before; this process serves the file as well.
func (s *site) exported(ctx context.Context, usage quotav1.UsageServiceClient, name string, req *quotav1.ExportBreakdownRequest) error {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return err
	}
	before, err := peak()
	if err != nil {
		return err
	}
	begun := time.Now()
	stream, err := usage.ExportBreakdown(ctx, req)
	if err != nil {
		return err
	}
	var end *quotav1.ExportEnd
	told, bytes := 0, 0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		bytes += len(m.Data)
		if m.Progress != nil {
			told++
		}
		if m.End != nil {
			end = m.End
		}
	}
	took := time.Since(begun)
	if end == nil || end.Bytes != int64(bytes) {
		return fmt.Errorf("the file has %d bytes, and ends with %v", bytes, end)
	}
	most, err := peak()
	load, _ := os.ReadFile("/proc/loadavg") // without it the figure says less
	fmt.Printf("export, %s: %d rows, %.0f MB in %s: %.0f rows/s; progress was told %d times; memory at most %.0f MB, %.0f MB before; load %.14s\n",
		name, end.Rows, float64(bytes)/1e6, took.Round(time.Millisecond), float64(end.Rows)/took.Seconds(), told, float64(most)/1e3, float64(before)/1e3, load)
	return err
}

// peak is the most memory of this process since its peak was last reset, in kB.
func peak() (kB int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscan(rest, &kB)
	return kB, err
}
