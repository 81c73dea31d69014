package quotactl

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) statementCloseDueCommand() *cobra.Command {
	var f render.Format
	var grace time.Duration
	req := &quotav1.CloseDueRequest{}
	cmd := &cobra.Command{
		Use:   "close-due",
		Short: "Close every period of every tenant that has ended",
		Long: `close-due closes all periods that are due, tenant by tenant, and prints its progress. It can
be run again after it broke off, or after some were refused: closed periods stay as they
are. It exits with 1 if a period is due and could not be closed.`,
		Example: "  quotactl statement close-due --dry-run\n  quotactl statement close-due --grace 48h",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.GraceMs = grace.Milliseconds()
			t := &render.Table{Header: []string{"TENANT", "PERIOD", "NUMBER", "TOTAL", "DIGEST", "REFUSED"}, Numbers: map[int]bool{2: true, 3: true}}
			items := []map[string]any{}
			looked, refused := 0, 0
			for {
				var resp *quotav1.CloseDueResponse
				conn, err := c.dial(cmd.Context())
				if err != nil {
					return err
				}
				// The server ends each call in time.
				ctx, cancel := context.WithTimeout(cmd.Context(), max(c.conn.timeout, time.Minute))
				resp, err = quotav1.NewStatementServiceClient(conn).CloseDue(ctx, req)
				cancel()
				if err != nil {
					return err
				}
				for _, s := range resp.Closed {
					total, number := "", render.Dash("")
					for i, n := range s.Totals {
						if i > 0 {
							total += ", "
						}
						total += n.Text
					}
					if s.Number > 0 {
						number = strconv.FormatInt(s.Number, 10)
					}
					t.Add(s.Tenant, s.Period, number, render.Dash(total), s.Digest, "")
					items = append(items, map[string]any{"tenant": s.Tenant, "period": s.Period, "number": s.Number, "total": total, "digest": s.Digest})
				}
				for _, r := range resp.Refused {
					t.Add(r.Tenant, r.Period, render.Dash(""), render.Dash(""), render.Dash(""), r.Reason)
					items = append(items, map[string]any{"tenant": r.Tenant, "period": r.Period, "refused": r.Reason})
				}
				looked += int(resp.Tenants)
				refused += len(resp.Refused)
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					break
				}
				c.Note("%d tenants, through %s\n", looked, req.PageToken)
			}
			if err := c.Write(f, t, items); err != nil {
				return err
			}
			c.Note("%d tenants, %d periods due, %d refused\n", looked, len(items), refused)
			if refused > 0 {
				return errUnsound
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 0, "leave periods that ended less than this `DURATION` ago, such as 48h; 0 closes all that have ended")
	cmd.Flags().StringVar(&req.ForceReason, "force", "", "close also periods with incomplete or quarantined usage: a `TEXT` that says why")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "say what is due, and close nothing")
	f.Table(cmd)
	return cmd
}

func (c *cli) statementSimulateCommand() *cobra.Command {
	var f render.Format
	var document string
	req := &quotav1.SimulateRequest{}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Say who would pay how much more or less, by past usage",
		Long: `simulate prices periods that have ended by the prices of another document, or as if the
tenants had had another plan. It prints the result beside the present prices' for the same
usage, without credits and adjustments. Nothing is kept. A row is a payer's, with all tenants
that it pays for. For a tenant whose parent pays, the row is the parent's, and only that
tenant's plan is tried.`,
		Example: "  quotactl statement simulate -f next.yaml --periods 3\n  quotactl statement simulate --tenant acme --plan enterprise",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if document == "" && req.Plan == "" {
				return misuse("what is tried? Give -f FILE, --plan PLAN or both")
			}
			if document != "" {
				text, err := c.read(document)
				if err != nil {
					return err
				}
				req.Document, req.File = text, document
			}
			t := &render.Table{Header: []string{"TENANT", "PERIOD", "WAS", "WOULD BE", "DIFFERENCE"}, Numbers: map[int]bool{2: true, 3: true, 4: true}}
			items := []map[string]any{}
			sums := map[string][2]int64{}
			var currencies []string
			for {
				conn, err := c.dial(cmd.Context())
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), max(c.conn.timeout, time.Minute))
				resp, err := quotav1.NewStatementServiceClient(conn).Simulate(ctx, req)
				cancel()
				if err != nil {
					return err
				}
				for _, p := range resp.Periods {
					t.Add(p.Tenant, p.Period, p.WasText, p.WouldBeText, p.DifferenceText)
					items = append(items, map[string]any{"tenant": p.Tenant, "period": p.Period, "currency": p.Currency, "was": p.Was, "would_be": p.WouldBe})
					sum, ok := sums[p.Currency]
					if !ok {
						currencies = append(currencies, p.Currency)
					}
					sums[p.Currency] = [2]int64{sum[0] + p.Was, sum[1] + p.WouldBe}
				}
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					break
				}
			}
			if f == "table" || f == "" {
				for _, currency := range currencies {
					text := func(n int64) string { return billing.Money{Amount: n, Currency: currency}.String() }
					n := sums[currency]
					t.Add("total", "", text(n[0]), text(n[1]), text(n[1]-n[0]))
				}
			}
			return c.Write(f, t, items)
		},
	}
	cmd.Flags().StringVar(&req.Tenant, "tenant", "", "for this `TENANT`; for all if not given")
	cmd.Flags().StringVar(&req.Plan, "plan", "", "as if tenants had had this `PLAN`; under their own if not given")
	cmd.Flags().StringVarP(&document, "file", "f", "", "the policy document whose prices are tried, a `FILE`; - reads standard input; the one in force if not given")
	cmd.Flags().Int32Var(&req.Periods, "periods", 1, "how many of the last periods that have ended, `N` from 1 to 24")
	f.Table(cmd)
	return cmd
}
