package quotactl

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) auditCommand() *cobra.Command {
	var f render.Format
	req := &quotav1.ListAuditRequest{}
	limit := 50
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print who changed what, newest first",
		Long: `audit prints the log of all changes of policies, tenants, keys, switches, statements and
the ledger. Each row was written in the transaction that made the change.`,
		Example: "  quotactl audit --object acme\n  quotactl audit --action tenant --actor k7f3q --limit 1000 -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return misuse("--limit must be at least 1")
			}
			t := &render.Table{Header: []string{"NUMBER", "TIME", "ACTOR", "ACTION", "OBJECT", "BEFORE", "AFTER"}, Numbers: map[int]bool{0: true}}
			items := []map[string]any{}
			for len(items) < limit {
				req.PageSize = int32(min(limit-len(items), pageSize))
				var resp *quotav1.ListAuditResponse
				err := c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (err error) {
					resp, err = admin.ListAudit(ctx, req)
					return err
				})
				if err != nil {
					return err
				}
				for _, r := range resp.Rows {
					t.Add(strconv.FormatInt(r.Number, 10), render.Stamp(r.AtMs), r.Actor, r.Action, r.Object, render.Dash(r.Before), render.Dash(r.After))
					items = append(items, map[string]any{"number": r.Number, "at": render.Stamp(r.AtMs), "actor": r.Actor, "action": r.Action, "object": r.Object,
						"before": raw(r.Before), "after": raw(r.After)})
				}
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					break
				}
			}
			return c.Write(f, t, items)
		},
	}
	cmd.Flags().StringVar(&req.Actor, "actor", "", "changes by this `ACTOR`: a key's id as key list has it, or open")
	cmd.Flags().StringVar(&req.Action, "action", "", "changes whose action begins with this `ACTION`: policy, tenant, tenant.set-plan, key, statement, ledger, ...")
	cmd.Flags().StringVar(&req.Object, "object", "", "changes of this `OBJECT`: the id of a tenant or a key, or the number of a policy version")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many changes, `N` from 1 up")
	f.Table(cmd)
	return cmd
}

// raw is JSON as it is; nothing for none.
func raw(text string) any {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
