package quotactl

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) quarantineCommand() *cobra.Command {
	return group("quarantine", "List, retry and discard what could not become entries",
		c.quarantineListCommand(), c.quarantineShowCommand(), c.quarantineRetryCommand(), c.quarantineDiscardCommand())
}

func (c *cli) quarantineListCommand() *cobra.Command {
	var o render.Format
	req := &quotav1.ListQuarantineRequest{PageSize: pageSize}
	var after int64
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rows and reports in quarantine, oldest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				req.PageToken = wire.PageToken(after)
				resp, err := books.ListQuarantine(ctx, req)
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"ID", "REPORT", "ROW", "TENANT", "LIMIT", "UNITS", "STORED", "STATE", "REASON"}, Numbers: map[int]bool{0: true, 5: true}}
				for _, q := range resp.Rows {
					row, units := "", ""
					if q.RowNumber >= 0 {
						row = strconv.Itoa(int(q.RowNumber))
					}
					if q.Row != nil {
						units = count(q.Row.Admitted)
					}
					t.Add(count(q.Id), reportName(q.Agent, q.Epoch, q.Seq), row, q.Row.GetTenant(), q.Row.GetLimit(), units, render.Stamp(q.StoredMs), resolved(q.Resolution), q.Reason)
				}
				if err := c.Write(o, t, resp); err != nil {
					return err
				}
				if resp.NextPageToken != "" && o != "json" {
					c.Note("there may be more: --after %s\n", resp.NextPageToken)
				}
				return nil
			})
		},
	}
	o.Table(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Agent, "agent", "", "what is of this `AGENT`'s reports alone")
	f.BoolVar(&req.All, "all", false, "also what was released or discarded")
	f.Int64Var(&after, "after", 0, "what has an id above this `ID`")
	f.Int32Var(&req.PageSize, "limit", pageSize, "how many rows and reports, `N` from 1 to 1000")
	return cmd
}

func resolved(r *quotav1.Resolution) string {
	switch {
	case r == nil:
		return "held"
	case r.Correction == 0:
		return "discarded"
	}
	return fmt.Sprintf("released by %d", r.Correction)
}

func reportName(agent string, epoch, seq int64) string {
	return fmt.Sprintf("%s/%d/%d", agent, epoch, seq)
}

func (c *cli) quarantineShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Print one of them, with all that is kept of it, as JSON",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseNumber("ID", args[0])
			if err != nil {
				return err
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				q, err := books.GetQuarantined(ctx, &quotav1.GetQuarantinedRequest{Id: id})
				if err != nil {
					return err
				}
				return c.JSON(q.GetRow())
			})
		},
	}
}

// chosen says which rows a command is about: those of the ids that it is given, or all that are held of an agent.
type chosen struct {
	agent, heldFor string
	epoch          int64
}

func (o *chosen) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "in place of IDs: all rows that are held of this `AGENT`'s reports")
	f.Int64Var(&o.epoch, "epoch", 0, "with --agent, rows of this `EPOCH` alone")
	f.StringVar(&o.heldFor, "held-for", "", "with --agent, rows whose reason begins with this `TEXT`, such as unsealed")
}

// check reads the ids that a command line names; none with --agent.
func (o *chosen) check(args []string) ([]int64, error) {
	switch {
	case o.agent == "" && (o.epoch != 0 || o.heldFor != ""):
		return nil, misuse("--epoch and --held-for choose among an agent's rows: give --agent as well")
	case o.agent != "" && len(args) > 0:
		return nil, misuse("give IDs or --agent, not both")
	case o.agent == "" && len(args) == 0:
		return nil, misuse("which? Give ids from `quotactl ledger quarantine list`, or --agent")
	}
	var all []int64
	for _, a := range args {
		id, err := parseNumber("ID", a)
		if err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, nil
}

// each calls f for the ids, as many at a time as the ledger resolves at once, and returns how many there were. Reports
// that are held whole are not among an agent's rows: somebody has to look at each.
func (o *chosen) each(ctx context.Context, books quotav1.LedgerServiceClient, given []int64, f func(ids []int64) error) (n int, err error) {
	if o.agent == "" {
		return len(given), f(given)
	}
	for req := (&quotav1.ListQuarantineRequest{Agent: o.agent, PageSize: ledger.MaxResolved}); ; {
		page, err := books.ListQuarantine(ctx, req)
		if err != nil {
			return n, err
		}
		var ids []int64
		for _, q := range page.Rows {
			if q.RowNumber >= 0 && (o.epoch == 0 || q.Epoch == o.epoch) && strings.HasPrefix(q.Reason, o.heldFor) {
				ids = append(ids, q.Id)
			}
		}
		if len(ids) > 0 {
			if err := f(ids); err != nil {
				return n, err
			}
		}
		n += len(ids)
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return n, nil
		}
	}
}

func (c *cli) quarantineRetryCommand() *cobra.Command {
	var f correctionFlags
	var of chosen
	cmd := &cobra.Command{
		Use:   "retry ID...",
		Short: "Judge rows again, and release those that may become entries now",
		Long: `retry judges rows again, by what is known now: a tenant that was created since, a
slot that has begun. Those that pass become entries by one correction for each thousand,
once; the others stay, each with its reason. It exits with 1 when any stays.`,
		Example: `  quotactl ledger quarantine retry 1 2 --reason 'tenant created'
  quotactl ledger quarantine retry --agent gw-7 --epoch 1772446000000 --held-for unsealed --reason 'it was killed'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := of.check(args)
			if err == nil {
				err = f.check(false)
			}
			if err != nil {
				return err
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				stay := false
				n, err := of.each(ctx, books, all, func(ids []int64) error {
					done, err := books.RetryQuarantined(ctx, &quotav1.RetryQuarantinedRequest{Ids: ids, Reason: f.reason})
					if err != nil {
						return err
					}
					if c.Output == "json" {
						err = c.JSON(done)
					} else if done.Correction != 0 {
						c.Say("correction %d released %d rows\n", done.Correction, len(done.Released))
					}
					for _, r := range done.Refused {
						c.Note("%d stays: %s\n", r.Id, r.Reason)
					}
					stay = stay || len(done.Refused) > 0
					return err
				})
				switch {
				case err != nil:
					return err
				case stay:
					return errUnsound
				case n == 0:
					c.Note("no such rows are held\n")
				}
				return nil
			})
		},
	}
	f.flags(cmd, false)
	of.flags(cmd)
	return cmd
}

func (c *cli) quarantineDiscardCommand() *cobra.Command {
	var f correctionFlags
	var of chosen
	cmd := &cobra.Command{
		Use:   "discard ID...",
		Short: "Say that rows or reports will never be used",
		Long: `discard keeps the rows where they are, and the reason with them: they cannot be released
any more.`,
		Example: `  quotactl ledger quarantine discard 3 --reason 'no such customer'
  quotactl ledger quarantine discard --agent gw-7 --held-for unsealed --reason 'somebody wrote to its journal'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := of.check(args)
			if err == nil {
				err = f.check(false)
			}
			if err != nil {
				return err
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				discarded := []int64{}
				_, err := of.each(ctx, books, all, func(ids []int64) error {
					_, err := books.DiscardQuarantined(ctx, &quotav1.DiscardQuarantinedRequest{Ids: ids, Reason: f.reason})
					if err == nil {
						discarded = append(discarded, ids...)
					}
					return err
				})
				if err != nil && len(discarded) > 0 {
					c.Note("discarded %d\n", len(discarded))
				}
				if err != nil {
					return err
				}
				return c.Tell(map[string]any{"discarded": discarded}, "discarded %d\n", len(discarded))
			})
		},
	}
	f.flags(cmd, false)
	of.flags(cmd)
	return cmd
}

func (c *cli) traceCommand() *cobra.Command {
	var o render.Format
	cmd := &cobra.Command{
		Use:   "trace AGENT/EPOCH/SEQ | HEIGHT/N",
		Short: "Follow a report to its block and entries, or an entry back to its reports",
		Example: `  quotactl ledger trace gateway-1/1772446000000/12   # a report
  quotactl ledger trace 812/3                        # the entry at place 3 of block 812`,
		Args: exactly("AGENT/EPOCH/SEQ or HEIGHT/N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			parts := strings.Split(args[0], "/")
			if len(parts) == 2 {
				height, n, err := parseEntry(args[0])
				if err != nil {
					return err
				}
				return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
					t, err := books.TraceEntry(ctx, &quotav1.TraceEntryRequest{Height: height, N: n})
					if err != nil {
						return err
					}
					return c.printEntry(o, args[0], t)
				})
			}
			if len(parts) != 3 {
				return misuse("%q is neither a report, AGENT/EPOCH/SEQ, nor an entry, HEIGHT/N", args[0])
			}
			epoch, err := strconv.ParseInt(parts[1], 10, 64)
			seq, serr := strconv.ParseInt(parts[2], 10, 64)
			if err != nil || serr != nil {
				return misuse("%q is not a report; write AGENT/EPOCH/SEQ, the last two in digits", args[0])
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				t, err := books.TraceReport(ctx, &quotav1.TraceReportRequest{Agent: parts[0], Epoch: epoch, Seq: seq})
				if err != nil {
					return err
				}
				return c.printReport(o, args[0], t)
			})
		},
	}
	o.Table(cmd)
	return cmd
}

func (c *cli) printReport(o render.Format, name string, t *quotav1.TraceReportResponse) error {
	out := &render.Table{Header: []string{"SLOT", "TENANT", "LIMIT", "METER", "PLAN", "ATTRIBUTES", "ADMITTED", "OVERAGE", "DENIED", "WHERE"}, Numbers: map[int]bool{6: true, 7: true, 8: true}}
	for _, r := range t.Rows {
		where := "not folded yet"
		switch {
		case r.Quarantined != 0:
			where = fmt.Sprintf("quarantine %d", r.Quarantined)
		case r.Entry != nil:
			where = fmt.Sprintf("entry %d/%d", t.Block.GetHeight(), *r.Entry)
		case t.Block != nil:
			where = "archived with its month"
		}
		out.Add(append(rowCells(r.Row), where)...)
	}
	if o == "table" {
		c.Say("report %s: units %d to %d, stored %s, digest %x\n", name, t.TotalBefore, t.TotalAfter, render.Stamp(t.StoredMs), t.Digest)
		switch {
		case t.Block != nil:
			c.Say("block %d, folded %s, hash %x\n", t.Block.Height, render.Stamp(t.Block.FoldedMs), t.Block.Hash)
		case t.Queued:
			c.Say("not folded yet\n")
		default:
			c.Say("a heartbeat: nothing to fold\n")
			return nil
		}
		if t.Archive != "" {
			c.Say("it is archived in %s, with its rows\n", t.Archive)
			return nil
		}
	}
	return c.Write(o, out, t)
}

func rowCells(r *quotav1.LedgerRow) []string {
	return []string{time.UnixMilli(r.SlotMs).UTC().Format("2006-01-02T15:04Z"), r.Tenant, r.Limit, r.Meter, r.Plan, strings.Join(r.Attributes, " "),
		count(r.Admitted), count(r.Overage), count(r.Denied)}
}

func (c *cli) printEntry(o render.Format, name string, t *quotav1.TraceEntryResponse) error {
	if o == "table" {
		c.Say("entry %s: %s\n", name, strings.Join(rowCells(t.Row), " "))
		c.Say("block %d, folded %s, hash %x\n", t.Block.GetHeight(), render.Stamp(t.Block.GetFoldedMs()), t.Block.GetHash())
		for _, n := range t.CorrectedBy {
			c.Say("corrected by correction %d\n", n)
		}
		if t.ArchivedReports > 0 {
			c.Say("%d reports of its block are archived; what they add to it is not told\n", t.ArchivedReports)
		}
		if k := t.Correction; k != nil {
			c.Say("it is of correction %d: %s by %s, %s: %s\n", k.Number, k.Kind, k.Actor, render.Stamp(k.AtMs), k.Reason)
			return nil
		}
	}
	out := &render.Table{Header: []string{"REPORT", "ADMITTED", "OVERAGE", "DENIED"}, Numbers: map[int]bool{1: true, 2: true, 3: true}}
	for _, r := range t.Reports {
		out.Add(reportName(r.Agent, r.Epoch, r.Seq), count(r.Admitted), count(r.Overage), count(r.Denied))
	}
	return c.Write(o, out, t)
}
