package quotactl

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// errUnsound ends a command that found faults, or did only part of its work. They were printed.
var errUnsound = errors.New("something is not as it should be")

func (c *cli) ledgerCommand() *cobra.Command {
	return group("ledger", "Verify, reconcile, trace and correct the ledger",
		c.verifyCommand(), c.reconcileCommand(), c.rebuildCommand(), c.traceCommand(), c.quarantineCommand(),
		c.adjustCommand(), c.backfillCommand(), c.revertCommand(), c.correctionsCommand())
}

func (c *cli) verifyCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the whole ledger against itself",
		Long: `verify checks the ledger against itself, in one snapshot, while it is in use. Every
epoch's reports must be contiguous and end at its frontier, and each report must be
folded once or queued. Entries must be the sums of their block's reports, and each
block's hash must be of its content and of the block below. Roll-ups must be the sums of
entries, and quarantine must hold what reports say.

It also checks statements, credits, policy versions, keys, and the audit log, in which
each row is chained to the one before. Of months that retention archived, it checks what
the ledger still holds, and says how much. "quota-server retain --check" checks the files.

It prints every fault and exits with 1, or what it checked and exits with 0. An agent that
ended without its last report is no fault of the ledger: it prints a line for each such
start, with the most that may be missing.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.verify(cmd.Context(), f) },
	}
	f.Table(cmd)
	return cmd
}

func (c *cli) verify(ctx context.Context, f render.Format) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	stream, err := quotav1.NewLedgerServiceClient(conn).Verify(ctx, &quotav1.VerifyRequest{})
	if err != nil {
		return err
	}
	m, err := last(c, stream, func(m *quotav1.VerifyResponse) bool { return m.Result != nil })
	if err != nil {
		return err
	}
	return c.printVerified(f, m.Result)
}

func (c *cli) printVerified(f render.Format, r *quotav1.VerifyResult) error {
	t := &render.Table{Header: []string{"TABLE", "WHICH", "WHAT"}}
	faults := []map[string]any{}
	for _, x := range r.Faults {
		t.Add(x.Table, x.Which, x.What)
		faults = append(faults, map[string]any{"table": x.Table, "which": x.Which, "what": x.What})
	}
	var err error
	if f != "table" || len(r.Faults) > 0 {
		err = c.Write(f, t, map[string]any{
			"sound": len(faults) == 0, "faults": faults, "more_faults": r.MoreFaults, "epochs": r.Epochs, "reports": r.Reports, "blocks": r.Blocks,
			"entries": r.Entries, "rollups": r.Rollups, "quarantined": r.Quarantined, "height": r.Height, "hash": hex.EncodeToString(r.Hash),
			"archived_reports": r.ArchivedReports, "archived_blocks": r.ArchivedBlocks, "archived_rollups": r.ArchivedRollups, "archived_before": archivedBefore(r),
			"lost": lostItems(r.Lost), "more_lost": r.MoreLost,
		})
	}
	if f == "table" && err == nil {
		word := "sound"
		if n := int64(len(r.Faults)) + r.MoreFaults; n > 0 {
			word = fmt.Sprintf("not sound: %d faults, %d shown", n, len(r.Faults))
		}
		c.Say("the ledger is %s\nchecked %d epochs, %d reports, %d blocks, %d entries, %d roll-ups, %d in quarantine\n",
			word, r.Epochs, r.Reports, r.Blocks, r.Entries, r.Rollups, r.Quarantined)
		if before := archivedBefore(r); before != "" {
			c.Say("archived is what is before %s: %d reports were checked by numbers and digests, %d blocks by chain only, %d roll-ups not at all\n",
				before, r.ArchivedReports, r.ArchivedBlocks, r.ArchivedRollups)
		}
		if r.Height > 0 {
			c.Say("block %d has the hash %x\n", r.Height, r.Hash)
		}
		printLost(c.Out, r.Lost, r.MoreLost)
	}
	if err == nil && len(r.Faults) > 0 {
		err = errUnsound
	}
	return err
}

// archivedBefore is the oldest month that is not archived; empty if none is archived.
func archivedBefore(r *quotav1.VerifyResult) string {
	if r.ArchivedBeforeMs == 0 {
		return ""
	}
	return time.UnixMilli(r.ArchivedBeforeMs).UTC().Format("2006-01")
}

func (c *cli) rebuildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rebuild",
		Short: "Make the roll-ups again from entries",
		Long: `rebuild compares every roll-up with the sum of its entries, and corrects it if it differs.
Usage may be read meanwhile; folding waits, a month at a time.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := c.dial(cmd.Context())
			if err != nil {
				return err
			}
			stream, err := quotav1.NewLedgerServiceClient(conn).Rebuild(cmd.Context(), &quotav1.RebuildRequest{})
			if err != nil {
				return err
			}
			m, err := last(c, stream, func(m *quotav1.RebuildResponse) bool { return m.Done })
			if err != nil {
				return err
			}
			return c.Tell(map[string]any{"wrong": m.Wrong}, "%d roll-ups were wrong\n", m.Wrong)
		},
	}
}

// last prints progress on Err, and returns the last message, which has the result.
func last[M interface {
	GetProgress() *quotav1.LedgerProgress
}](c *cli, stream interface{ Recv() (M, error) }, done func(M) bool) (M, error) {
	tell := c.progress()
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return m, errors.New("the server ended without a result")
		case err != nil, done(m):
			return m, err
		}
		tell(m.GetProgress())
	}
}

// progress prints on Err the progress of work that takes longer than a second.
func (c *cli) progress() func(*quotav1.LedgerProgress) {
	begun := time.Now()
	return func(p *quotav1.LedgerProgress) {
		if p != nil && time.Since(begun) > time.Second {
			c.Note("%s: %d of %d\n", p.Stage, p.Done, p.Total)
		}
	}
}
