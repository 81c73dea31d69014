package quotactl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) reconcileCommand() *cobra.Command {
	var o render.Format
	req := &quotav1.ReconcileRequest{PageSize: pageSize}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare what was granted with what became of it",
		Long: `reconcile compares servers' records of grants with the agent's account of them, and that
with the settled units, for each limit of each start of an agent:

  granted = spent + returned + expired + held

A difference has a name, such as "in flight" or "lost reply"; docs/ledger.md says where
each comes from. It exits with 1 if a difference has no harmless cause.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ledger(cmd.Context(), func(ctx context.Context, books quotav1.LedgerServiceClient) error {
				return c.reconcile(ctx, books, req, o)
			})
		},
	}
	o.Table(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Agent, "agent", "", "what this `AGENT` was granted, alone")
	f.Int64Var(&req.Epoch, "epoch", 0, "with --agent: this `EPOCH` of it alone; 0 for all")
	f.BoolVar(&req.Differing, "differing", false, "only what does not agree")
	return cmd
}

// reconcile reads all pages.
func (c *cli) reconcile(ctx context.Context, books quotav1.LedgerServiceClient, req *quotav1.ReconcileRequest, o render.Format) error {
	t := &render.Table{
		Header:  []string{"AGENT", "EPOCH", "LIMIT", "STATE", "RECORDED", "GRANTED", "SPENT", "RETURNED", "EXPIRED", "HELD", "SETTLED", "DIFFERENCES"},
		Numbers: map[int]bool{1: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true, 10: true},
	}
	all := &quotav1.ReconcileResponse{}
	var faults error
	for {
		resp, err := books.Reconcile(ctx, req)
		if err != nil {
			return err
		}
		all.Limits = append(all.Limits, resp.Limits...)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	for _, r := range all.Limits {
		var names []string
		for _, d := range r.Differences {
			names = append(names, fmt.Sprintf("%s: %s %+d", d.Name, d.Of, d.Units))
			if d.Fault {
				faults = errUnsound
			}
		}
		said := func(n int64) string {
			if r.Said == nil {
				return ""
			}
			return count(n)
		}
		s := r.Said
		// The part of a trickle that did not run counts as not granted.
		t.Add(r.Agent, fmt.Sprint(r.Epoch), r.Limit, r.State, count(r.Recorded.GetGranted()-r.Recorded.GetUnrun()),
			said(s.GetGranted()-s.GetUnrun()), said(s.GetSpent()), said(s.GetReturned()), said(r.Expired), said(s.GetHeld()), count(r.Settled), strings.Join(names, "; "))
	}
	err := c.Write(o, t, all)
	if err == nil {
		err = faults
	}
	return err
}
