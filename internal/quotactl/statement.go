package quotactl

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) statementCommand() *cobra.Command {
	return group("statement", "Preview, close, list, show and simulate statements: what tenants owe",
		c.statementPreviewCommand(), c.statementCloseCommand(), c.statementCloseDueCommand(), c.statementSimulateCommand(), c.statementListCommand(), c.statementShowCommand())
}

// statementOutput gives a command --output for a statement.
func statementOutput(f *render.Format, cmd *cobra.Command) {
	f.Flag(cmd, "table, json (the document that the digest is of), csv or html", "table", "json", "csv", "html")
}

func (c *cli) statementPreviewCommand() *cobra.Command {
	var f render.Format
	var tenant, period string
	cmd := &cobra.Command{
		Use:   "preview --tenant TENANT",
		Short: "Work out what a period comes to, as of the newest sealed block",
		Long: `preview works out what a tenant owes for a period from the usage that is sealed into
blocks, and keeps nothing. The same block gives the same statement; the block's hash is
printed. A period under way is worked out as if only usage changed until its end.`,
		Example: "  quotactl statement preview --tenant acme\n  quotactl statement preview --tenant acme --period 2026-10 -o html > acme-2026-10.html",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tenant == "" {
				return misuse("whose? Give --tenant TENANT")
			}
			return c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) error {
				s, err := client.PreviewStatement(ctx, &quotav1.PreviewStatementRequest{Tenant: tenant, Period: period})
				if err != nil {
					return err
				}
				return c.printStatement(f, s.GetStatement())
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "the `TENANT` whose statement it is; needed")
	cmd.Flags().StringVar(&period, "period", "", "the `MONTH` that the period begins in, such as 2026-10; the period under way if not given")
	statementOutput(&f, cmd)
	return cmd
}

func (c *cli) statementCloseCommand() *cobra.Command {
	var f render.Format
	var tenant, period, reason string
	cmd := &cobra.Command{
		Use:   "close --tenant TENANT",
		Short: "Keep the statement of a tenant's next period, for ever",
		Long: `close keeps the statement of a period that has ended. Periods are closed one after
another, each once: closing one again prints it as it was closed. It is refused while
usage of the period is incomplete or in quarantine, unless --force gives a reason. Usage
that comes later is an adjustment on the next statement.`,
		Example: "  quotactl statement close --tenant acme\n  quotactl statement close --tenant acme --period 2026-10 --force 'gateway-7 burnt down'",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tenant == "" {
				return misuse("whose? Give --tenant TENANT")
			}
			return c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) error {
				s, err := client.CloseStatement(ctx, &quotav1.CloseStatementRequest{Tenant: tenant, Period: period, ForceReason: reason})
				if err != nil {
					return err
				}
				return c.printStatement(f, s.GetStatement())
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "the `TENANT` whose statement it is; needed")
	cmd.Flags().StringVar(&period, "period", "", "the `MONTH` that the period begins in, such as 2026-10; the next one that is not closed if not given")
	cmd.Flags().StringVar(&reason, "force", "", "close it though usage is not complete, or some in quarantine: a `TEXT` that says why")
	statementOutput(&f, cmd)
	return cmd
}

func (c *cli) statementShowCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "show TENANT PERIOD",
		Short: "Print a statement as it was closed",
		Args:  exactly("TENANT", "PERIOD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) error {
				s, err := client.GetStatement(ctx, &quotav1.GetStatementRequest{Tenant: args[0], Period: args[1]})
				if err != nil {
					return err
				}
				return c.printStatement(f, s.GetStatement())
			})
		},
	}
	statementOutput(&f, cmd)
	return cmd
}

func (c *cli) statementListCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "list TENANT",
		Short: "List a tenant's closed statements, newest first",
		Args:  exactly("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &render.Table{Header: []string{"NUMBER", "PERIOD", "BLOCK", "CLOSED", "BY", "FORCED", "DIGEST"}, Numbers: map[int]bool{0: true, 2: true}}
			items := []map[string]any{}
			for token := ""; ; {
				var resp *quotav1.ListStatementsResponse
				err := c.statements(cmd.Context(), func(ctx context.Context, client quotav1.StatementServiceClient) (err error) {
					resp, err = client.ListStatements(ctx, &quotav1.ListStatementsRequest{Tenant: args[0], PageSize: pageSize, PageToken: token})
					return err
				})
				if err != nil {
					return err
				}
				for _, s := range resp.Statements {
					t.Add(strconv.FormatInt(s.Number, 10), s.Period, strconv.FormatInt(s.Height, 10), render.Stamp(s.ClosedMs), s.ClosedBy, s.Forced, s.Digest)
					items = append(items, map[string]any{"number": s.Number, "period": s.Period, "block": s.Height, "block_hash": s.BlockHash,
						"closed": render.Stamp(s.ClosedMs), "by": s.ClosedBy, "forced": s.Forced, "digest": s.Digest})
				}
				if token = resp.NextPageToken; token == "" {
					break
				}
			}
			return c.Write(f, t, items)
		},
	}
	f.Table(cmd)
	return cmd
}

// statements calls f with the statement service and a deadline.
func (c *cli) statements(ctx context.Context, f func(context.Context, quotav1.StatementServiceClient) error) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.conn.timeout)
	defer cancel()
	return f(ctx, quotav1.NewStatementServiceClient(conn))
}

// printStatement prints a statement; beside it goes how far it can be trusted.
func (c *cli) printStatement(f render.Format, p *quotav1.Statement) error {
	s, err := billing.Decode([]byte(p.Document), p.Digest)
	if err != nil {
		return err
	}
	switch f {
	case "json":
		_, err = fmt.Fprintln(c.File(), p.Document)
	case "csv":
		err = s.WriteCSV(c.File())
	case "html":
		err = s.WriteHTML(c.File(), p.Digest)
	default:
		return c.printStatementTable(s, p)
	}
	if err == nil {
		c.printStatementOrigin(c.Err, p)
	}
	return err
}

func (c *cli) printStatementTable(s *billing.Statement, p *quotav1.Statement) error {
	c.Say("%s, %s: %s to %s (%s)\n", s.Tenant, s.Period.Name, s.Period.From, s.Period.To, s.Period.Zone)
	t := &render.Table{Header: []string{"KIND", "PLAN", "METER", "UNITS", "INCLUDED", "PERIOD", "AMOUNT"}, Numbers: map[int]bool{3: true, 4: true, 6: true}}
	for _, l := range s.Lines {
		units, included := "", ""
		if l.Meter != "" {
			units, included = strconv.FormatInt(l.Units, 10), strconv.FormatInt(l.Included, 10)
		}
		period := l.Period
		if period == "" {
			period = s.Period.Name
		}
		plan := l.Plan
		if l.Credit != "" {
			plan = l.Credit
		}
		t.Add(l.Kind, plan, l.Meter, units, included, period, l.Money())
	}
	for _, total := range p.Totals {
		t.Add("total", "", "", "", "", "", total.Text)
	}
	if len(s.Lines) == 0 {
		c.Say("nothing is owed\n")
	} else if err := c.Write("table", t, nil); err != nil {
		return err
	}
	c.printStatementOrigin(c.Out, p)
	return nil
}

// printStatementOrigin says which data a statement was made from.
func (c *cli) printStatementOrigin(w io.Writer, p *quotav1.Statement) {
	if p.Height == 0 {
		fmt.Fprintln(w, "at no block: nothing was sealed yet")
	} else {
		fmt.Fprintf(w, "at block %d, %s\n", p.Height, p.BlockHash)
	}
	fmt.Fprintf(w, "digest %s\n", p.Digest)
	if p.Number > 0 {
		fmt.Fprintf(w, "statement %d, closed %s by %s\n", p.Number, render.Stamp(p.ClosedMs), p.ClosedBy)
	}
	if p.QuarantinedRows > 0 {
		fmt.Fprintf(w, "%d rows with %d units are in quarantine, and not on it\n", p.QuarantinedRows, p.QuarantinedUnits)
	}
	if p.Forced != "" {
		fmt.Fprintf(w, "closed all the same: %s\n", display.Escape(p.Forced, ""))
	}
	c.printComplete(w, &quotav1.GetUsageResponse{CompleteThroughMs: p.CompleteThroughMs, Lagging: p.Lagging, Lost: p.Lost, MoreLost: p.MoreLost})
}
