package quotactl

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// when is when a plan is to change; the zero value means now.
type when struct {
	at        string
	periodEnd bool
}

func (w *when) flags(f *pflag.FlagSet) {
	f.StringVar(&w.at, "at", "", "the `TIME` when: 2026-12-01 (its midnight, UTC) or 2026-12-01T00:00:00+01:00; now if not given")
	f.BoolVar(&w.periodEnd, "at-period-end", false, "when the billing period that is now ends")
}

// set asks for a plan at that time.
func (w *when) set(req *quotav1.SetTenantPlanRequest, now time.Time) error {
	if w.periodEnd && w.at != "" {
		return misuse("--at and --at-period-end are two times; give one")
	}
	at, err := parseWhen(w.at, now, time.UTC)
	if err != nil {
		return err
	}
	if w.at != "" {
		req.AtMs = at.UnixMilli()
	}
	req.AtPeriodEnd = w.periodEnd
	return nil
}

func (c *cli) tenantSetPlanCommand() *cobra.Command {
	var w when
	cmd := &cobra.Command{
		Use:   "set-plan ID PLAN",
		Short: "Change a tenant's plan: now, at a date, or when its billing period ends",
		Args:  exactly("ID", "PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setPlan(cmd.Context(), args[0], args[1], &w)
		},
	}
	w.flags(cmd.Flags())
	return cmd
}

func (c *cli) tenantCancelCommand() *cobra.Command {
	var w when
	var to string
	var immediately bool
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a tenant's plan when its billing period does; it falls back to another",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if immediately && (w.at != "" || w.periodEnd) {
				return misuse("--now and another time are two times; give one")
			}
			w.periodEnd = w.periodEnd || !immediately && w.at == ""
			if to == "" {
				err := c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
					plans, err := admin.ListPlans(ctx, &quotav1.ListPlansRequest{})
					if err == nil {
						to = plans.DefaultPlan
					}
					return err
				})
				if err != nil {
					return err
				}
				if to == "" {
					return misuse("the policy has no default_plan to fall back to; give --to PLAN")
				}
			}
			return c.setPlan(cmd.Context(), args[0], to, &w)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `PLAN` that it falls back to; the policy's default_plan if not given")
	cmd.Flags().BoolVar(&immediately, "now", false, "at once, and not when the period ends")
	cmd.Flags().StringVar(&w.at, "at", "", "at this `TIME`, written as for set-plan, and not when the period ends")
	return cmd
}

func (c *cli) tenantKeepPlanCommand() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "keep-plan ID --at TIME",
		Short: "Take back a plan change that has not come yet",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at == "" {
				return misuse("which change? Give --at TIME, as quotactl tenant plans has it")
			}
			t, err := parseWhen(at, c.now(), time.UTC)
			if err != nil {
				return err
			}
			return c.tenant(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.Tenant, error) {
				resp, err := admin.CancelPlanChange(ctx, &quotav1.CancelPlanChangeRequest{Id: args[0], AtMs: t.UnixMilli()})
				return resp.GetTenant(), err
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the `TIME` when the change would come, as tenant plans has it; needed")
	return cmd
}

func (c *cli) tenantPlansCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "plans ID",
		Short: "List which plan a tenant had when, and will have",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.ListPlanChanges(ctx, &quotav1.ListPlanChangesRequest{Tenant: args[0]})
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"FROM", "PLAN", "STATE"}}
				items := []map[string]any{}
				for _, p := range resp.Changes {
					state := ""
					switch {
					case p.Plan == "":
						state = "closed"
					case p.Failed != "":
						state = "could not be made: " + p.Failed
					case p.Scheduled:
						state = "scheduled by " + p.Actor
					}
					at := time.UnixMilli(p.FromMs).UTC().Format(time.RFC3339)
					t.Add(at, p.Plan, state)
					items = append(items, map[string]any{"from": at, "plan": p.Plan, "scheduled": p.Scheduled, "actor": p.Actor, "failed": p.Failed})
				}
				return c.Write(f, t, items)
			})
		},
	}
	f.Table(cmd)
	return cmd
}

func (c *cli) tenantPayersCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "payers ID",
		Short: "List who pays for a tenant, and from when on",
		Long: `payers lists on whose statements the usage of a tenant is, by the time of the usage. It is
on the tenant's own, or on those of a tenant above (billing: {pays: parent}).`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.ListPayers(ctx, &quotav1.ListPayersRequest{Tenant: args[0]})
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"FROM", "PAYER", "STATE"}}
				items := []map[string]any{}
				for _, p := range resp.Payers {
					from, state := "the beginning", ""
					if p.FromMs > 0 {
						from = render.Stamp(p.FromMs)
					}
					if p.Scheduled {
						state = "to come"
					}
					t.Add(from, p.Payer, state)
					items = append(items, map[string]any{"from": render.Stamp(p.FromMs), "payer": p.Payer, "scheduled": p.Scheduled})
				}
				return c.Write(f, t, items)
			})
		},
	}
	f.Table(cmd)
	return cmd
}

// setPlan asks for a plan, and says from when on the tenant has it.
func (c *cli) setPlan(ctx context.Context, id, plan string, w *when) error {
	req := &quotav1.SetTenantPlanRequest{Id: id, Plan: plan}
	if err := w.set(req, c.now()); err != nil {
		return err
	}
	if req.AtMs == 0 && !req.AtPeriodEnd {
		return c.tenant(ctx, func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.Tenant, error) {
			t, err := admin.SetTenantPlan(ctx, req)
			if err == nil {
				c.warnOfPolicy(ctx, admin, id, plan)
			}
			return t.GetTenant(), err
		})
	}
	return c.admin(ctx, func(ctx context.Context, admin quotav1.AdminServiceClient) error {
		t, err := admin.SetTenantPlan(ctx, req)
		if err != nil {
			return err
		}
		c.warnOfPolicy(ctx, admin, id, plan)
		resp, err := admin.ListPlanChanges(ctx, &quotav1.ListPlanChangesRequest{Tenant: id})
		if err != nil {
			return err
		}
		for _, p := range resp.Changes {
			if p.Scheduled && p.Plan == plan && (req.AtMs == 0 || p.FromMs == req.AtMs) {
				return c.Tell(p, "tenant %s will have the plan %s from %s on\n", id, plan, time.UnixMilli(p.FromMs).UTC().Format(time.RFC3339))
			}
		}
		return c.Tell(t.GetTenant(), "tenant %s has the plan %s\n", id, plan) // its time came meanwhile
	})
}

// warnOfPolicy warns that the policy in force names the tenant with another plan, and will take the change back. The
// change is made, so errors of this check are not printed.
func (c *cli) warnOfPolicy(ctx context.Context, admin quotav1.AdminServiceClient, id, plan string) {
	p, err := admin.GetPolicy(ctx, &quotav1.GetPolicyRequest{})
	if err != nil {
		return
	}
	doc, err := policy.Parse("policy", []byte(p.Policy.Document))
	if err != nil { // of a newer server
		return
	}
	for _, spec := range doc.TenantSpecs() {
		if spec.ID == id && spec.Plan != plan {
			c.Note("quotactl: warning: policy version %d names tenant %s with the plan %s: applied again, the document takes this back; write it there as well\n", p.Policy.Version, id, spec.Plan)
		}
	}
}
