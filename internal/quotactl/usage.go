package quotactl

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// usagePage is how many rows one call returns.
const usagePage = 10_000

// sums are the words of --by.
var sums = map[string]quotav1.GetUsageRequest_By{
	"total": quotav1.GetUsageRequest_BY_TOTAL, "hour": quotav1.GetUsageRequest_BY_HOUR, "day": quotav1.GetUsageRequest_BY_DAY,
	"month": quotav1.GetUsageRequest_BY_MONTH, "limit": quotav1.GetUsageRequest_BY_LIMIT, "attribute": quotav1.GetUsageRequest_BY_ATTRIBUTE,
}

// usageQuestion is the flags of usage.
type usageQuestion struct {
	tenant, from, to, by, zone string
	shadow                     bool  // what the shadow policy counts, instead of usage
	version                    int64 // what that shadow counted; 0 for the one tried now
	output                     render.Format
}

func (c *cli) usageCommand() *cobra.Command {
	var q usageQuestion
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Print settled usage, and through when it is complete",
		Long: `usage sums what agents settled into the ledger. It includes every report that was
acknowledged, and says until when it is complete. Later usage may still be on its way from
the agents that it names. Agents that ended without a last report are named with the most
that may be missing of all their tenants.

With --shadow it prints what the shadow policy would have done. No other answer includes
that, because its denials denied nobody.

Times are RFC 3339, a date (where it begins in --zone), how long ago (-24h, -7d) or now.`,
		Example: "  quotactl usage --tenant acme --from -24h --by hour\n  quotactl usage --tenant acme --from 2026-01-01 --to 2026-02-01 --by day --zone Europe/Berlin -o csv",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.version != 0 && !q.shadow {
				return misuse("--shadow-version goes with --shadow")
			}
			if q.shadow && !cmd.Flags().Changed("by") {
				q.by = "limit"
			}
			return c.usage(cmd.Context(), &q)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.tenant, "tenant", "", "usage of this `TENANT`; of all together if not given")
	f.StringVar(&q.from, "from", "", "usage from this `TIME` on; the beginning if not given")
	f.StringVar(&q.to, "to", "", "usage before this `TIME`; all of it if not given")
	f.StringVar(&q.by, "by", "total", "sum by `WHAT`: total, hour, day, month, limit or attribute")
	f.StringVar(&q.zone, "zone", "", "time `ZONE` of days and months, such as Europe/Berlin; UTC if not given")
	f.BoolVar(&q.shadow, "shadow", false, "what the shadow policy would have admitted and denied, by limit if --by is not given")
	f.Int64Var(&q.version, "shadow-version", 0, "with --shadow: what the shadow of this `VERSION` counted; 0 is the one tried now")
	q.output.Table(cmd)
	cmd.AddCommand(c.usageReportCommand(), c.usageTopCommand(), c.usageExportCommand())
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"total", "hour", "day", "month", "limit", "attribute"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) usage(ctx context.Context, q *usageQuestion) error {
	zone, err := parseZone(q.zone)
	if err != nil {
		return err
	}
	by, ok := sums[q.by]
	if !ok {
		return misuse("--by must be total, hour, day, month, limit or attribute")
	}
	now := c.now()
	from, err := parseWhen(q.from, now, zone)
	if err != nil {
		return err
	}
	to, err := parseWhen(q.to, now, zone)
	if err != nil {
		return err
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return misuse("--from %s is not before --to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	if q.shadow && q.version == 0 {
		if err := c.admin(ctx, func(ctx context.Context, admin quotav1.AdminServiceClient) error {
			p, err := admin.GetShadow(ctx, &quotav1.GetShadowRequest{})
			q.version = p.GetPolicy().GetVersion()
			return err
		}); err != nil {
			return err
		}
	}
	client := quotav1.NewUsageServiceClient(conn)
	req := &quotav1.GetUsageRequest{Tenant: q.tenant, FromMs: millis(from), ToMs: millis(to), By: by, Zone: q.zone, PageSize: usagePage, ShadowVersion: q.version}
	var rows []*quotav1.UsageRow
	var first *quotav1.GetUsageResponse
	for {
		callCtx, cancel := context.WithTimeout(ctx, c.conn.timeout)
		resp, err := client.GetUsage(callCtx, req)
		cancel()
		if err != nil {
			return err
		}
		if first == nil {
			first = resp // the earliest answer about completeness holds for all pages
		}
		rows = append(rows, resp.Rows...)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	return c.printUsage(q, by, zone, rows, first)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (c *cli) printUsage(q *usageQuestion, by quotav1.GetUsageRequest_By, zone *time.Location, rows []*quotav1.UsageRow, about *quotav1.GetUsageResponse) error {
	items := make([]map[string]any, 0, len(rows))
	for _, r := range rows {
		item := map[string]any{"admitted": r.Admitted, "overage": r.Overage, "denied": r.Denied}
		for i, name := range columns(by) {
			item[strings.ToLower(name)] = cells(by, zone, r)[i]
		}
		items = append(items, item)
	}
	answer := map[string]any{"tenant": q.tenant, "by": q.by, "rows": items, "complete_through": nil, "lagging": append([]string{}, about.Lagging...), "lost": lostItems(about.Lost), "more_lost": about.MoreLost}
	if about.CompleteThroughMs != 0 {
		answer["complete_through"] = render.Stamp(about.CompleteThroughMs)
	}
	tenant := q.tenant
	if tenant == "" && q.output == "table" {
		tenant = "(all)"
	}
	t := usageTable(by, zone, "TENANT", tenant, rows)
	if q.output == "table" && len(rows) > 1 && by != quotav1.GetUsageRequest_BY_LIMIT && by != quotav1.GetUsageRequest_BY_ATTRIBUTE {
		t.Rows = append(t.Rows, total(t, tenant, rows))
	}
	if err := c.Write(q.output, t, answer); err != nil || q.output == "json" {
		return err
	}
	if len(rows) == 0 && q.output == "table" {
		c.Say("no usage\n")
	}
	c.printComplete(c.Beside(q.output), about)
	return nil
}

// usageTable has the tenant, the key of the sums, and the counts.
func usageTable(by quotav1.GetUsageRequest_By, zone *time.Location, first, tenant string, rows []*quotav1.UsageRow) *render.Table {
	t := &render.Table{Numbers: map[int]bool{}}
	t.Header = append([]string{first}, columns(by)...)
	for i := range 3 {
		t.Numbers[len(t.Header)+i] = true
	}
	t.Header = append(t.Header, "ADMITTED", "OVERAGE", "DENIED")
	for _, r := range rows {
		row := append([]string{tenant}, cells(by, zone, r)...)
		t.Add(append(row, count(r.Admitted), count(r.Overage), count(r.Denied))...)
	}
	return t
}

// total is the last line of sums that may be added up. Sums over limits may not, because one request may meet several
// limits.
func total(t *render.Table, tenant string, rows []*quotav1.UsageRow) []string {
	var admitted, overage, denied int64
	for _, r := range rows {
		admitted += r.Admitted
		overage += r.Overage
		denied += r.Denied
	}
	line := make([]string, len(t.Header))
	line[0] = tenant
	if n := len(line) - 4; n > 0 {
		line[1] = "total"
	}
	copy(line[len(line)-3:], []string{count(admitted), count(overage), count(denied)})
	return line
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

func columns(by quotav1.GetUsageRequest_By) []string {
	switch by {
	case quotav1.GetUsageRequest_BY_HOUR:
		return []string{"HOUR"}
	case quotav1.GetUsageRequest_BY_DAY:
		return []string{"DAY"}
	case quotav1.GetUsageRequest_BY_MONTH:
		return []string{"MONTH"}
	case quotav1.GetUsageRequest_BY_LIMIT:
		return []string{"LIMIT", "METER"}
	case quotav1.GetUsageRequest_BY_ATTRIBUTE:
		return []string{"LIMIT", "METER", "ATTRIBUTES"}
	}
	return nil
}

func cells(by quotav1.GetUsageRequest_By, zone *time.Location, r *quotav1.UsageRow) []string {
	start := time.UnixMilli(r.StartMs)
	switch by {
	case quotav1.GetUsageRequest_BY_HOUR:
		return []string{start.UTC().Format("2006-01-02T15:04Z")}
	case quotav1.GetUsageRequest_BY_DAY:
		return []string{start.In(zone).Format(time.DateOnly)}
	case quotav1.GetUsageRequest_BY_MONTH:
		return []string{start.In(zone).Format("2006-01")}
	case quotav1.GetUsageRequest_BY_LIMIT:
		if r.Meter == "" && len(r.Attributes) > 0 { // what a shadow limit would have denied
			return []string{r.Limit + " (" + strings.Join(r.Attributes, " ") + ")", r.Meter}
		}
		return []string{r.Limit, r.Meter}
	case quotav1.GetUsageRequest_BY_ATTRIBUTE:
		return []string{r.Limit, r.Meter, strings.Join(r.Attributes, " ")}
	}
	return nil
}

// printComplete says until when the answer is complete, and what it lacks all the same.
func (c *cli) printComplete(w io.Writer, about *quotav1.GetUsageResponse) {
	if about.CompleteThroughMs == 0 {
		fmt.Fprintln(w, "complete through: nothing was settled yet")
	} else {
		fmt.Fprintf(w, "complete through %s\n", render.Stamp(about.CompleteThroughMs))
	}
	if n := len(about.Lagging); n > 0 {
		fmt.Fprintf(w, "held back by %d agents: %s\n", n, strings.Join(about.Lagging, ", "))
	}
	printLost(w, about.Lost, about.MoreLost)
}
