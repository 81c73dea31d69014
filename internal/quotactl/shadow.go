package quotactl

import (
	"context"

	"github.com/spf13/cobra"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) shadowCommand() *cobra.Command {
	g := group("shadow", "Try a policy beside the one in force", c.shadowShowCommand(), c.shadowPromoteCommand(), c.shadowClearCommand())
	g.Long = `A shadow is a policy version that every agent evaluates beside the one in force. What
it would deny is counted and denied to nobody: quotactl usage --shadow tells.
quotactl apply --shadow -f FILE begins a trial.`
	return g
}

func (c *cli) shadowShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the policy that is tried",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				p, err := admin.GetShadow(ctx, &quotav1.GetShadowRequest{})
				if err != nil {
					return err
				}
				if c.Output == "json" {
					return c.writeDocument(p.GetPolicy())
				}
				return c.printDocument(p.GetPolicy())
			})
		},
	}
}

func (c *cli) shadowPromoteCommand() *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "promote",
		Short: "Make the policy that is tried the next version in force",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.PromoteShadow(ctx, &quotav1.PromoteShadowRequest{Version: version})
				if err != nil {
					return err
				}
				c.warn(resp.GetChange())
				return c.Tell(resp.GetChange(), "%sversion %d is in force; no shadow is tried\n", changes(resp.GetChange()), resp.Change.Version)
			})
		},
	}
	cmd.Flags().Int64Var(&version, "version", 0, "refuse when another than this `VERSION` is tried; 0 takes whichever is")
	return cmd
}

func (c *cli) shadowClearCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clear",
		Short: "End the trial; what it counted stays",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.ClearShadow(ctx, &quotav1.ClearShadowRequest{})
				if err != nil {
					return err
				}
				if resp.Version == 0 {
					return c.Tell(resp, "no shadow is tried\n")
				}
				return c.Tell(resp, "version %d is tried no longer\n", resp.Version)
			})
		},
	}
}
