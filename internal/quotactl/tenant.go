package quotactl

import (
	"context"

	"github.com/spf13/cobra"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) tenantCommand() *cobra.Command {
	return group("tenant", "Create tenants, change their plans and limits, suspend and delete them", c.tenantCreateCommand(), c.tenantSetPlanCommand(), c.tenantCancelCommand(),
		c.tenantSetLimitCommand(), c.tenantUnsetLimitCommand(),
		c.tenantPlansCommand(), c.tenantKeepPlanCommand(), c.tenantPayersCommand(),
		c.tenantSuspendCommand(), c.tenantResumeCommand(), c.tenantGetCommand(), c.tenantDeleteCommand())
}

func (c *cli) tenantCreateCommand() *cobra.Command {
	var plan, parent string
	cmd := &cobra.Command{
		Use:   "create ID --plan PLAN",
		Short: "Add a tenant",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if plan == "" {
				return misuse("which plan? Give --plan PLAN")
			}
			return c.tenant(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.Tenant, error) {
				resp, err := admin.CreateTenant(ctx, &quotav1.CreateTenantRequest{Id: args[0], Plan: plan, Parent: parent})
				return resp.GetTenant(), err
			})
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "a `PLAN` of the policy in force; needed")
	cmd.Flags().StringVar(&parent, "parent", "", "the parent `TENANT`, which must exist; none if not given")
	return cmd
}

func (c *cli) tenantSuspendCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "suspend ID",
		Short: "Deny all requests of a tenant and its descendants, within a second",
		Long: `suspend has all requests of a tenant denied, and those of its descendants, until resume.
It is stored with the tenant; while the policy store is away use quotactl switch deny.`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.tenant(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.Tenant, error) {
				resp, err := admin.SuspendTenant(ctx, &quotav1.SuspendTenantRequest{Id: args[0]})
				return resp.GetTenant(), err
			})
		},
	}
}

func (c *cli) tenantResumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume ID",
		Short: "Let a suspended tenant go on",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.tenant(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.Tenant, error) {
				resp, err := admin.ResumeTenant(ctx, &quotav1.ResumeTenantRequest{Id: args[0]})
				return resp.GetTenant(), err
			})
		},
	}
}

func (c *cli) tenantDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID",
		Short: "Close a tenant for good; its usage and statements are kept",
		Long: `delete closes a tenant: all its requests are denied within a second, its plan ends,
and its id is not used again. Its usage and statements are kept, and its last period
can still be closed. It cannot be taken back: suspend is for a while.

It is refused while other tenants are under it, and while the policy in force names it.`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.tenant(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.Tenant, error) {
				resp, err := admin.DeleteTenant(ctx, &quotav1.DeleteTenantRequest{Id: args[0]})
				return resp.GetTenant(), err
			})
		},
	}
}

func (c *cli) tenantGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Print one tenant as JSON",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				t, err := admin.GetTenant(ctx, &quotav1.GetTenantRequest{Id: args[0]})
				if err != nil {
					return err
				}
				return c.JSON(t.GetTenant())
			})
		},
	}
}

func (c *cli) tenant(ctx context.Context, change func(context.Context, quotav1.AdminServiceClient) (*quotav1.Tenant, error)) error {
	return c.admin(ctx, func(ctx context.Context, admin quotav1.AdminServiceClient) error {
		t, err := change(ctx, admin)
		if err != nil {
			return err
		}
		under := ""
		if t.Parent != "" {
			under = ", under " + t.Parent
		}
		switch {
		case t.Closed:
			return c.Tell(t, "tenant %s is closed; its usage and statements are kept, and quotactl statement close %s closes its last period (revision %d)\n", t.Id, "--tenant "+t.Id, t.Revision)
		case t.Capped:
			under += ", and is stopped by its spending cap"
		case t.Suspended:
			under += ", and is suspended"
		}
		return c.Tell(t, "tenant %s has the plan %s%s (revision %d)\n", t.Id, t.Plan, under, t.Revision)
	})
}
