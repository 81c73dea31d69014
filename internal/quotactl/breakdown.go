package quotactl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// everies are the words of --every.
var everies = map[string]quotav1.ListBreakdownRequest_Every{
	"": quotav1.ListBreakdownRequest_EVERY_RANGE, "slot": quotav1.ListBreakdownRequest_EVERY_SLOT, "hour": quotav1.ListBreakdownRequest_EVERY_HOUR,
	"day": quotav1.ListBreakdownRequest_EVERY_DAY, "month": quotav1.ListBreakdownRequest_EVERY_MONTH,
}

// exportFormats are the words of --format.
var exportFormats = map[string]quotav1.ExportBreakdownRequest_Format{
	"csv": quotav1.ExportBreakdownRequest_FORMAT_CSV, "jsonl": quotav1.ExportBreakdownRequest_FORMAT_JSONL, "parquet": quotav1.ExportBreakdownRequest_FORMAT_PARQUET,
}

// breakdownQuestion is the flags of report, top and export.
type breakdownQuestion struct {
	by, every, zone, from, to string
	req                       quotav1.ListBreakdownRequest
}

// flags are the flags that all three have.
func (q *breakdownQuestion) flags(f *pflag.FlagSet, by string) {
	f.StringVar(&q.by, "by", by, "a row for each of `NAMES`: tenant, plan, limit, meter, attributes or attribute:NAME; several with commas")
	f.StringVar(&q.zone, "zone", "", "time `ZONE` of days and months, such as Europe/Berlin; UTC if not given")
	f.StringVar(&q.from, "from", "", "usage from this `TIME` on; the beginning if not given")
	f.StringVar(&q.to, "to", "", "usage before this `TIME`; all of it if not given")
	f.StringVar(&q.req.Tenant, "tenant", "", "usage of this `TENANT`; of all if not given")
	f.BoolVar(&q.req.Subtree, "subtree", false, "with --tenant: and of all tenants below it")
	f.StringVar(&q.req.Plan, "plan", "", "usage under this `PLAN`")
	f.StringVar(&q.req.Limit, "limit", "", "usage by this `LIMIT`")
	f.StringVar(&q.req.Meter, "meter", "", "usage on this `METER`")
	f.StringVar(&q.req.Attribute, "attribute", "", "usage with this attribute: `NAME=VALUE`")
	f.BoolVar(&q.req.Peak, "peak", false, "with the busiest slot of each row")
	f.Int64Var(&q.req.Height, "height", 0, "usage in the blocks up to this `HEIGHT`; up to the newest if not given")
}

func (q *breakdownQuestion) times(f *pflag.FlagSet) {
	f.StringVar(&q.every, "every", "", "a row for each `STEP` of time: slot (five minutes), hour, day or month; one of the whole range if not given")
	f.Int64Var(&q.req.SinceHeight, "since-height", 0, "usage in the blocks above this `HEIGHT`: what came since")
}

// request checks the flags.
func (q *breakdownQuestion) request(now time.Time) (*quotav1.ListBreakdownRequest, *time.Location, error) {
	zone, err := parseZone(q.zone)
	if err != nil {
		return nil, nil, err
	}
	every, ok := everies[q.every]
	if !ok {
		return nil, nil, misuse("--every must be slot, hour, day or month")
	}
	if q.req.Subtree && q.req.Tenant == "" {
		return nil, nil, misuse("--subtree goes with --tenant")
	}
	from, err := parseWhen(q.from, now, zone)
	if err != nil {
		return nil, nil, err
	}
	to, err := parseWhen(q.to, now, zone)
	if err != nil {
		return nil, nil, err
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return nil, nil, misuse("--from %s is not before --to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	q.req.By, q.req.Every, q.req.Zone, q.req.FromMs, q.req.ToMs = q.by, every, q.zone, millis(from), millis(to)
	return &q.req, zone, nil
}

func (c *cli) usageReportCommand() *cobra.Command {
	var q breakdownQuestion
	var f render.Format
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Print sealed usage, told apart by names and times",
		Long: `report sums usage in the ledger's blocks, up to the newest. The same question at the same
--height gives the same answer for ever; --since-height prints what came after a height.
Rows without usage are left out. Unless rows are by limit, admitted and overage are the
meters' counts.

Times are RFC 3339, a date (where it begins in --zone), how long ago (-24h, -7d) or now.`,
		Example: "  quotactl usage report --by tenant,meter --every month --from 2026-01-01\n  quotactl usage report --tenant acme --subtree --by tenant,attribute:endpoint --every day --from -7d --peak",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.report(cmd.Context(), &q, f)
		},
	}
	q.flags(cmd.Flags(), "tenant")
	q.times(cmd.Flags())
	f.Table(cmd)
	_ = cmd.RegisterFlagCompletionFunc("every", cobra.FixedCompletions([]string{"slot", "hour", "day", "month"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) usageTopCommand() *cobra.Command {
	var q breakdownQuestion
	var f render.Format
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Print who has the most usage",
		Example: "  quotactl usage top --from -24h\n  quotactl usage top -n 20 --most denied --by tenant,limit",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.req.Top < 1 {
				return misuse("-n must be 1 to 1000")
			}
			return c.report(cmd.Context(), &q, f)
		},
	}
	q.flags(cmd.Flags(), "tenant")
	cmd.Flags().Int32VarP(&q.req.Top, "number", "n", 10, "how many rows, `N` from 1 to 1000")
	cmd.Flags().StringVar(&q.req.TopBy, "most", "admitted", "most of `WHAT`: admitted, overage or denied")
	f.Table(cmd)
	return cmd
}

// report asks for page after page, all of the first page's block, and prints them.
func (c *cli) report(ctx context.Context, q *breakdownQuestion, f render.Format) error {
	req, zone, err := q.request(c.now())
	if err != nil {
		return err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	req.PageSize = usagePage
	client := quotav1.NewUsageServiceClient(conn)
	var rows []*quotav1.BreakdownRow
	var origin *quotav1.BreakdownOrigin
	for {
		callCtx, cancel := context.WithTimeout(ctx, c.conn.timeout)
		resp, err := client.ListBreakdown(callCtx, req)
		cancel()
		if err != nil {
			return err
		}
		if origin == nil {
			origin = resp.Origin
		}
		rows = append(rows, resp.Rows...)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	var by []string
	if req.By != "" {
		by = strings.Split(req.By, ",")
	}
	t := &render.Table{Numbers: map[int]bool{}}
	if req.Every != quotav1.ListBreakdownRequest_EVERY_RANGE {
		t.Header = append(t.Header, strings.ToUpper(q.every))
	}
	for _, d := range by {
		t.Header = append(t.Header, strings.ToUpper(strings.TrimPrefix(d, "attribute:")))
	}
	counts := []string{"ADMITTED", "OVERAGE", "DENIED"}
	if req.Peak {
		counts = append(counts, "PEAK", "PEAK/S")
	}
	for range counts {
		t.Numbers[len(t.Header)+len(t.Numbers)] = true
	}
	t.Header = append(t.Header, counts...)
	items := make([]map[string]any, 0, len(rows))
	for _, r := range rows {
		item := map[string]any{"admitted": r.Admitted, "overage": r.Overage, "denied": r.Denied}
		var line []string
		if req.Every != quotav1.ListBreakdownRequest_EVERY_RANGE {
			line = append(line, startOf(req.Every, zone, r.StartMs))
			item["start"] = time.UnixMilli(r.StartMs).In(zone).Format(time.RFC3339)
		}
		for i, n := range r.Names {
			line = append(line, render.Dash(n))
			item[by[i]] = n
		}
		line = append(line, count(r.Admitted), count(r.Overage), count(r.Denied))
		if req.Peak {
			line = append(line, count(r.Peak), perSecond(r.Peak, origin.SlotMs))
			item["peak"] = r.Peak
		}
		t.Add(line...)
		items = append(items, item)
	}
	answer := map[string]any{"rows": items, "block": origin.Height, "block_hash": origin.BlockHash, "complete_through": nil, "lagging": append([]string{}, origin.Lagging...), "lost": lostItems(origin.Lost), "more_lost": origin.MoreLost}
	if origin.CompleteThroughMs != 0 {
		answer["complete_through"] = render.Stamp(origin.CompleteThroughMs)
	}
	if err := c.Write(f, t, answer); err != nil || f == "json" {
		return err
	}
	if len(rows) == 0 && f == "table" {
		c.Say("no usage\n")
	}
	c.printOrigin(c.Beside(f), req, origin)
	return nil
}

// startOf writes a row's start as short as is clear.
func startOf(every quotav1.ListBreakdownRequest_Every, zone *time.Location, ms int64) string {
	t := time.UnixMilli(ms)
	switch every {
	case quotav1.ListBreakdownRequest_EVERY_DAY:
		return t.In(zone).Format(time.DateOnly)
	case quotav1.ListBreakdownRequest_EVERY_MONTH:
		return t.In(zone).Format("2006-01")
	default:
		return t.UTC().Format("2006-01-02T15:04Z")
	}
}

// perSecond is units of a slot as a rate, to a tenth.
func perSecond(units, slotMs int64) string {
	if slotMs <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(units)*1000/float64(slotMs), 'f', 1, 64)
}

// printOrigin says which data a breakdown was made from.
func (c *cli) printOrigin(w io.Writer, req *quotav1.ListBreakdownRequest, o *quotav1.BreakdownOrigin) {
	switch {
	case o.Height == 0:
		fmt.Fprintln(w, "at no block: nothing was sealed yet")
	case req.SinceHeight > 0:
		fmt.Fprintf(w, "of blocks above %d up to %d, %s\n", req.SinceHeight, o.Height, o.BlockHash)
	default:
		fmt.Fprintf(w, "at block %d, %s\n", o.Height, o.BlockHash)
	}
	if req.Height == 0 || o.CompleteThroughMs != 0 {
		c.printComplete(w, &quotav1.GetUsageResponse{CompleteThroughMs: o.CompleteThroughMs, Lagging: o.Lagging, Lost: o.Lost, MoreLost: o.MoreLost})
	}
}

func (c *cli) usageExportCommand() *cobra.Command {
	var q breakdownQuestion
	var output, kind string
	cmd := &cobra.Command{
		Use:   "export -o FILE",
		Short: "Write sealed usage to a file: CSV, JSON lines or Parquet",
		Long: `export writes everything that report would print to a file, however long, as it comes. The
file has a name of its own until it is whole. Its digest (SHA-256) is checked and printed.
The same question at the same --height gives the same bytes.`,
		Example: "  quotactl usage export --by tenant,limit,attributes --every hour --from 2026-10-01 --to 2026-11-01 -o october.parquet",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind == "" {
				kind = strings.TrimPrefix(filepath.Ext(output), ".")
			}
			f, ok := exportFormats[kind]
			switch {
			case output == "":
				return misuse("where to? Give -o FILE, or -o - for standard output")
			case !ok:
				return misuse("--format must be csv, jsonl or parquet, where the file's name does not end with one of them")
			}
			return c.export(cmd.Context(), &q, f, output)
		},
	}
	q.flags(cmd.Flags(), "tenant,limit,meter")
	q.times(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `FILE` to write; - is standard output")
	cmd.Flags().StringVar(&kind, "format", "", "the file's `FORMAT`: csv, jsonl or parquet; by its name if not given")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"csv", "jsonl", "parquet"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// export writes the file. It may take long, so --timeout does not bound it.
func (c *cli) export(ctx context.Context, q *breakdownQuestion, f quotav1.ExportBreakdownRequest_Format, output string) (err error) {
	req, _, err := q.request(c.now())
	if err != nil {
		return err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := quotav1.NewUsageServiceClient(conn).ExportBreakdown(ctx, &quotav1.ExportBreakdownRequest{Breakdown: req, Format: f})
	if err != nil {
		return err
	}
	to, whole := c.File(), func() error { return nil }
	if output != "-" {
		file, err := os.CreateTemp(filepath.Dir(output), filepath.Base(output)+".*.part")
		if err != nil {
			return err
		}
		defer func() {
			_ = file.Close() // it is closed already where it is whole
			_ = os.Remove(file.Name())
		}()
		to = file
		whole = func() error {
			return errors.Join(file.Chmod(0o644), file.Sync(), file.Close(), os.Rename(file.Name(), output))
		}
	}
	digest, bytes := sha256.New(), int64(0)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the file broke off before its end")
		}
		if err != nil {
			return err
		}
		digest.Write(m.Data)
		bytes += int64(len(m.Data))
		if _, err := to.Write(m.Data); err != nil {
			return err
		}
		if p := m.Progress; p != nil {
			c.Note("%d rows, %d of %d times read\n", p.Rows, p.Done, p.Total)
		}
		if m.End == nil {
			continue
		}
		if got := hex.EncodeToString(digest.Sum(nil)); got != m.End.Digest || bytes != m.End.Bytes {
			return fmt.Errorf("%d bytes with the digest %s came; %d with %s were sent", bytes, got, m.End.Bytes, m.End.Digest)
		}
		if err := whole(); err != nil {
			return err
		}
		c.Note("%d rows, %d bytes, digest %s\n", m.End.Rows, m.End.Bytes, m.End.Digest)
		c.printOrigin(c.Err, req, m.End.Origin)
		return nil
	}
}
