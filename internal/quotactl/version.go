package quotactl

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/version"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) versionCommand() *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of quotactl and of the server",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Output != "json" { // what is known is said also where no server answers
				c.Say("%s\n", version.Line("quotactl"))
			}
			if own {
				if c.Output == "json" {
					return c.JSON(map[string]any{"quotactl": version.String()})
				}
				return nil
			}
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				v, err := admin.GetVersion(ctx, &quotav1.GetVersionRequest{})
				if err != nil {
					return err
				}
				return c.Tell(map[string]any{"quotactl": version.String(), "quota_server": v.Version, "go": v.Go, "lease_store": v.LeaseStore, "ledger": v.Ledger},
					"quota-server %s (%s), leases in %s, ledger in %s\n", v.Version, v.Go, v.LeaseStore, v.Ledger)
			})
		},
	}
	cmd.Flags().BoolVar(&own, "client", false, "only quotactl's own; ask no server")
	return cmd
}
