package quotactl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var modes = map[string]quotav1.Switches_Mode{
	"normal": quotav1.Switches_NORMAL, "allow-all": quotav1.Switches_ALLOW_ALL, "shadow-all": quotav1.Switches_SHADOW_ALL,
}

func (c *cli) switchCommand() *cobra.Command {
	return group("switch", "Read and turn the switches that override every decision", c.switchGetCommand(), c.switchSetCommand())
}

func (c *cli) switchGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get",
		Short: "Print the switches",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				s, err := admin.GetSwitches(ctx, &quotav1.GetSwitchesRequest{})
				if err != nil {
					return err
				}
				c.printSwitches(s)
				return nil
			})
		},
	}
}

func (c *cli) switchSetCommand() *cobra.Command {
	var mode string
	var deny []string
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Turn switches, in force on every reachable agent within a second",
		Long: `set turns switches; those that are not named stay as they are.

Modes: normal; allow-all admits and counts everything; shadow-all decides and
counts, and never denies.`,
		Example: "  quotactl switch set --mode allow-all\n  quotactl switch set --mode normal --deny mallory,trudy\n  quotactl switch set --deny \"\"",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("mode") && !cmd.Flags().Changed("deny") {
				return misuse("what is to be set? Give --mode or --deny")
			}
			m, ok := modes[mode]
			if !ok && cmd.Flags().Changed("mode") {
				return misuse("--mode must be normal, allow-all or shadow-all")
			}
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				s, err := admin.GetSwitches(ctx, &quotav1.GetSwitchesRequest{})
				if err != nil {
					return err
				}
				if cmd.Flags().Changed("mode") {
					s.Mode = m
				}
				if cmd.Flags().Changed("deny") {
					s.DeniedTenants = deny
				}
				if s, err = admin.SetSwitches(ctx, &quotav1.SetSwitchesRequest{Switches: s}); err != nil {
					return err
				}
				c.printSwitches(s)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "", "normal, allow-all or shadow-all")
	cmd.Flags().StringSliceVar(&deny, "deny", nil, "tenants whose requests are denied, all of them; \"\" for none")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"normal", "allow-all", "shadow-all"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) printSwitches(s *quotav1.Switches) {
	fmt.Fprintf(c.Out, "mode: %s\ndenied tenants: %s\n",
		strings.ReplaceAll(strings.ToLower(s.Mode.String()), "_", "-"), dash(strings.Join(s.DeniedTenants, ", ")))
}
