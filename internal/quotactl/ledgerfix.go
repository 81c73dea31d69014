package quotactl

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// ledger calls f with the ledger service and a deadline.
func (c *cli) ledger(ctx context.Context, f func(context.Context, quotav1.LedgerServiceClient) error) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.conn.timeout)
	defer cancel()
	return f(ctx, quotav1.NewLedgerServiceClient(conn))
}

// correctionFlags are the flags that every correction needs.
type correctionFlags struct{ id, reason string }

func (f *correctionFlags) flags(cmd *cobra.Command, id bool) {
	if id {
		cmd.Flags().StringVar(&f.id, "idempotency-key", "", "your own `NAME` for this correction, by which running it again does nothing; needed")
	}
	cmd.Flags().StringVar(&f.reason, "reason", "", "a `TEXT` that says why, for those who look later; needed")
}

func (f *correctionFlags) check(id bool) error {
	switch {
	case id && f.id == "":
		return misuse("which correction is this? Give --idempotency-key, such as a ticket's number: running it again does nothing")
	case f.reason == "":
		return misuse("why? Give --reason")
	}
	return nil
}

func (c *cli) adjustCommand() *cobra.Command {
	var f correctionFlags
	req := &quotav1.AdjustRequest{}
	var entry, at string
	cmd := &cobra.Command{
		Use:   "adjust UNITS",
		Short: "Add units to a tenant's usage, or take them away",
		Long: `adjust writes an entry of its own, which names the correction, and with --entry the
entry that it corrects. Usage includes it at once. UNITS below zero are taken away;
write them after --.

Without --policy-version they are priced by the version in force at --at. A limit or a
meter that the tenant does not have in that version is refused. So are a version that was
only a shadow, and a time before the tenant began.`,
		Example: "  quotactl ledger adjust --entry 812/3 --reason 'counted twice' --idempotency-key ticket-4711 -- -500\n" +
			"  quotactl ledger adjust --tenant acme --limit requests --meter requests --at 2026-03-02T09:00:00Z --reason 'lost in the outage' --idempotency-key ticket-4712 1200",
		Args: exactly("UNITS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			units, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || units == 0 {
				return misuse("UNITS is %q; it must be a whole number, and not 0", args[0])
			}
			if err := f.check(true); err != nil {
				return err
			}
			req.Units, req.Reason, req.IdempotencyKey = units, f.reason, f.id
			switch {
			case entry != "":
				if req.EntryHeight, req.EntryN, err = parseEntry(entry); err != nil {
					return err
				}
			case req.Tenant == "" || req.Limit == "" || at == "":
				return misuse("what is corrected? Give --entry HEIGHT/N, or --tenant, --limit, --meter and --at")
			case !cmd.Flags().Changed("meter"):
				return misuse("which meter? Give --meter, or --meter= for a limit that feeds none: nothing is billed from that")
			default:
				when, err := parseWhen(at, c.now(), time.UTC)
				if err != nil {
					return err
				}
				req.AtMs = when.UnixMilli()
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				done, err := books.Adjust(ctx, req)
				return c.corrected(done.GetCorrection(), err)
			})
		},
	}
	f.flags(cmd, true)
	s := cmd.Flags()
	s.StringVar(&entry, "entry", "", "the `ENTRY` that is corrected, as HEIGHT/N")
	s.StringVar(&req.Tenant, "tenant", "", "the `TENANT` whose usage it is")
	s.StringVar(&req.Limit, "limit", "", "the `LIMIT` that admitted it")
	s.StringVar(&req.Meter, "meter", "", "the `METER` that it is counted on; empty for a limit that feeds none")
	s.StringArrayVar(&req.Attributes, "attribute", nil, "`NAME=VALUE` of the limit's attributes, in its order; may be repeated")
	s.StringVar(&at, "at", "", "the `TIME` when the usage was, written as for usage --from")
	s.Int64Var(&req.Overage, "overage", 0, "how many of the units were above a soft limit, `UNITS` with their sign")
	s.Int64Var(&req.PolicyVersion, "policy-version", 0, "the policy `VERSION` that prices them; the one in force at that time if not given")
	s.StringVar(&req.Plan, "plan", "", "the `PLAN` that they were admitted under; the one that the tenant had then if not given")
	return cmd
}

// corrected prints the effect of a correction.
func (c *cli) corrected(done *quotav1.Correction, err error) error {
	if err != nil {
		return err
	}
	return c.Tell(done, "correction %d: %s of %d units in %d rows\n", done.Number, done.Kind, done.Admitted, done.RowCount)
}

// backfillColumns are the columns of a backfill's file; the first five are needed.
var backfillColumns = []string{"time", "tenant", "limit", "meter", "admitted", "overage", "denied", "policy_version", "plan", "attributes"}

func (c *cli) backfillCommand() *cobra.Command {
	var f correctionFlags
	var path string
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Bring in usage that no agent reported",
		Long: `backfill adds the rows of a CSV file, all of them or none. The first line names the
columns: time, tenant, limit, meter and admitted. Optional columns are overage, denied,
policy_version, plan and attributes (NAME=VALUE pairs, separated by ;). Times are RFC 3339,
and are cut to their slot of five minutes. Without policy_version a row is priced by the
version in force in its slot. Limits, meters and attributes that the tenant does not have
in that version are refused. So are versions that were only shadows, and times before the
tenant began.

It needs a key of the role backfill, which no other role includes.`,
		Example: "  quotactl ledger backfill -f usage.csv --reason 'the gateways of the old system' --idempotency-key import-2026-03",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return misuse("which file? Give -f FILE; - reads standard input")
			}
			if err := f.check(true); err != nil {
				return err
			}
			in := c.In
			if path != "-" {
				file, err := os.Open(path)
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			rows, err := readBackfill(in)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				done, err := books.Backfill(ctx, &quotav1.BackfillRequest{IdempotencyKey: f.id, Reason: f.reason, Rows: rows})
				return c.corrected(done.GetCorrection(), err)
			})
		},
	}
	f.flags(cmd, true)
	cmd.Flags().StringVarP(&path, "file", "f", "", "the CSV `FILE`; - reads standard input")
	return cmd
}

// readBackfill reads a backfill's file strictly.
func readBackfill(in io.Reader) ([]*quotav1.LedgerRow, error) {
	text := bufio.NewReader(in)
	if mark, err := text.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" { // spreadsheets put it first
		_, _ = text.Discard(len(mark)) // it was just seen
	}
	lines := csv.NewReader(text)
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	at := map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(name)
		if _, twice := at[name]; twice || !slices.Contains(backfillColumns, name) {
			return nil, fmt.Errorf("column %q is not known, or there twice; columns are %s", name, strings.Join(backfillColumns, ", "))
		}
		at[name] = i
	}
	for _, name := range backfillColumns[:5] {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("there is no column %s", name)
		}
	}
	var rows []*quotav1.LedgerRow
	for {
		cells, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := lines.FieldPos(0)
		row := &quotav1.LedgerRow{Tenant: cells[at["tenant"]], Limit: cells[at["limit"]], Meter: cells[at["meter"]]}
		when, err := time.Parse(time.RFC3339, cells[at["time"]])
		if err != nil {
			return nil, fmt.Errorf("line %d: time %q is not like 2026-03-02T09:00:00Z", line, cells[at["time"]])
		}
		row.SlotMs = when.UnixMilli()
		for name, to := range map[string]*int64{"admitted": &row.Admitted, "overage": &row.Overage, "denied": &row.Denied, "policy_version": &row.PolicyVersion} {
			i, ok := at[name]
			if !ok || cells[i] == "" && name != "admitted" {
				continue
			}
			if *to, err = strconv.ParseInt(cells[i], 10, 64); err != nil {
				return nil, fmt.Errorf("line %d: %s %q is not a whole number", line, name, cells[i])
			}
		}
		if i, ok := at["attributes"]; ok && cells[i] != "" {
			row.Attributes = strings.Split(cells[i], ";")
		}
		if i, ok := at["plan"]; ok {
			row.Plan = cells[i]
		}
		rows = append(rows, row)
	}
}

func (c *cli) revertCommand() *cobra.Command {
	var f correctionFlags
	cmd := &cobra.Command{
		Use:   "revert NUMBER",
		Short: "Take a correction back, once",
		Args:  exactly("NUMBER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := parseNumber("NUMBER", args[0])
			if err == nil {
				err = f.check(false)
			}
			if err != nil {
				return err
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				done, err := books.RevertCorrection(ctx, &quotav1.RevertCorrectionRequest{Number: number, Reason: f.reason})
				return c.corrected(done.GetCorrection(), err)
			})
		},
	}
	f.flags(cmd, false)
	return cmd
}

func (c *cli) correctionsCommand() *cobra.Command {
	var o render.Format
	var limit int32
	cmd := &cobra.Command{
		Use:   "corrections",
		Short: "List corrections, newest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				resp, err := books.ListCorrections(ctx, &quotav1.ListCorrectionsRequest{PageSize: limit})
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"NUMBER", "KIND", "UNITS", "ROWS", "BLOCK", "REVERTED BY", "ACTOR", "AT", "KEY", "REASON"}, Numbers: map[int]bool{0: true, 2: true, 3: true}}
				for _, k := range resp.Corrections {
					t.Add(count(k.Number), k.Kind, count(k.Admitted), strconv.Itoa(int(k.RowCount)), some(k.Height), some(k.RevertedBy), k.Actor, render.Stamp(k.AtMs), k.IdempotencyKey, k.Reason)
				}
				return c.Write(o, t, resp)
			})
		},
	}
	o.Table(cmd)
	cmd.Flags().Int32Var(&limit, "limit", 20, "how many corrections, `N` from 1 to 1000")
	return cmd
}

// some writes a number; nothing for 0.
func some(n int64) string {
	if n == 0 {
		return ""
	}
	return count(n)
}

func parseNumber(name, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, misuse("%s is %q; it must be a number from 1 on", name, s)
	}
	return n, nil
}

// parseEntry reads HEIGHT/N.
func parseEntry(s string) (height int64, n int32, err error) {
	h, place, ok := strings.Cut(s, "/")
	height, herr := strconv.ParseInt(h, 10, 64)
	p, perr := strconv.ParseInt(place, 10, 32)
	if !ok || herr != nil || perr != nil || height < 1 || p < 0 {
		return 0, 0, misuse("%q is not an entry; write HEIGHT/N, such as 812/3", s)
	}
	return height, int32(p), nil
}

func (c *cli) agentsCommand() *cobra.Command {
	return group("agents", "Declare an agent lost", c.lostCommand())
}

func (c *cli) lostCommand() *cobra.Command {
	var f correctionFlags
	epoch := int64(-1)
	cmd := &cobra.Command{
		Use:   "lost AGENT",
		Short: "Say that an epoch of an agent will report no more",
		Long: `lost ends an open epoch whose machine is gone, so that usage can be complete without it.
Otherwise that takes 24 hours of silence. Units that it admitted since its last report may
be missing from the ledger. If it reports after all, nothing is refused, and it counts
again.

` + "`quotactl get agents`" + ` lists agents and epochs.`,
		Args: exactly("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("epoch") || epoch < 0 {
				return misuse("which start of the agent? Give --epoch, from `quotactl get agents`")
			}
			if err := f.check(false); err != nil {
				return err
			}
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				lost, err := books.DeclareLost(ctx, &quotav1.DeclareLostRequest{Agent: args[0], Epoch: epoch, Reason: f.reason})
				if err != nil {
					return err
				}
				return c.Tell(lost, "%s/%d is lost: %d units in %d reports are settled; what it admitted from %s on may be missing\n",
					lost.Agent, lost.Epoch, lost.Total, lost.Seq, render.Stamp(lost.ThroughMs))
			})
		},
	}
	f.flags(cmd, false)
	cmd.Flags().Int64Var(&epoch, "epoch", 0, "which start of the agent, an `EPOCH` as get agents has it; needed")
	return cmd
}
