package quotactl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var modes = map[string]quotav1.Switches_Mode{
	"normal": quotav1.Switches_MODE_NORMAL, "allow_all": quotav1.Switches_MODE_ALLOW_ALL, "shadow_all": quotav1.Switches_MODE_SHADOW_ALL,
}

func parseMode(s string) (quotav1.Switches_Mode, bool) {
	m, ok := modes[strings.ReplaceAll(s, "-", "_")]
	return m, ok
}

func (c *cli) switchCommand() *cobra.Command {
	g := group("switch", "Read and turn the switches that override every decision",
		c.switchShowCommand(), c.switchSetCommand(), c.switchDenyCommand(), c.switchUndenyCommand())
	g.Long = `switch reads and turns the switches that override every decision, in force on every
reachable agent within a second. They need neither the policy store nor the lease
store: the server that is told keeps them in memory, and stores them when it can.

Where --server names several servers, each of them is told: with both stores away a
server knows only what it was told itself.`
	return g
}

func (c *cli) switchShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Aliases: []string{"get"},
		Short:   "Print the switches",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.switches(cmd.Context(), nil)
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

Modes: normal; allow_all admits and counts everything; shadow_all decides and
counts, and never denies.`,
		Example: "  quotactl switch set --mode allow_all\n  quotactl switch set --mode normal --deny mallory,trudy\n  quotactl switch set --deny \"\"",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("mode") && !cmd.Flags().Changed("deny") {
				return misuse("what is to be set? Give --mode or --deny")
			}
			m, ok := parseMode(mode)
			if !ok && cmd.Flags().Changed("mode") {
				return misuse("--mode must be normal, allow_all or shadow_all")
			}
			return c.switches(cmd.Context(), func(s *quotav1.Switches) {
				if cmd.Flags().Changed("mode") {
					s.Mode = m
				}
				if cmd.Flags().Changed("deny") {
					s.DeniedTenants = deny
				}
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "", "the `MODE`: normal, allow_all or shadow_all")
	cmd.Flags().StringSliceVar(&deny, "deny", nil, "the `TENANTS` whose requests are denied, all of them with commas between; \"\" for none")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"normal", "allow_all", "shadow_all"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *cli) switchDenyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "deny TENANT...",
		Short: "Deny all requests of tenants, besides those denied already",
		Args:  atLeastOne("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.switches(cmd.Context(), func(s *quotav1.Switches) {
				s.DeniedTenants = append(s.DeniedTenants, args...)
			})
		},
	}
}

func (c *cli) switchUndenyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "undeny TENANT...",
		Short: "Deny tenants no longer",
		Args:  atLeastOne("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.switches(cmd.Context(), func(s *quotav1.Switches) {
				s.DeniedTenants = slices.DeleteFunc(s.DeniedTenants, func(id string) bool { return slices.Contains(args, id) })
			})
		},
	}
}

// switchTries bounds how often a change is made again because another came between.
const switchTries = 5

// switches makes a change, nil for none, on every named server, and prints each server's switches. A server that cannot
// be reached does not keep it from the others.
func (c *cli) switches(ctx context.Context, change func(*quotav1.Switches)) error {
	servers, err := c.conn.servers()
	if err != nil {
		return err
	}
	states := make([]*quotav1.Switches, len(servers))
	failures := make([]error, len(servers))
	var asked sync.WaitGroup
	for i, server := range servers {
		asked.Go(func() { states[i], failures[i] = c.switchesOf(ctx, server, change) })
	}
	asked.Wait()
	if len(servers) == 1 {
		if failures[0] != nil {
			return failures[0]
		}
		return c.printSwitches(states[0])
	}
	var failed []string
	all := []map[string]any{}
	for i, server := range servers {
		if failures[i] != nil {
			failed = append(failed, server)
			c.explain(failures[i], server)
			continue
		}
		if c.Output == "json" {
			v, err := render.Plain(states[i])
			if err != nil {
				return err
			}
			all = append(all, map[string]any{"server": server, "switches": v})
			continue
		}
		c.Say("server %s\n", server)
		if err := c.printSwitches(states[i]); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		if err := c.JSON(all); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d servers did not answer: %s", len(failed), len(servers), strings.Join(failed, ", "))
	}
	return nil
}

// explain prints why one of several servers failed.
func (c *cli) explain(err error, server string) {
	message := err.Error()
	if st, ok := status.FromError(err); ok {
		if message = st.Message(); unreached(message) != "" {
			message = unreached(message)
		}
	}
	c.Note("quotactl: %s: %s\n", server, message)
}

func (c *cli) switchesOf(ctx context.Context, server string, change func(*quotav1.Switches)) (*quotav1.Switches, error) {
	conn, err := c.conn.dial(server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // the answer is in
	ctx, cancel := context.WithTimeout(ctx, c.conn.timeout)
	defer cancel()
	admin := quotav1.NewAdminServiceClient(conn)
	for range switchTries {
		s, err := admin.GetSwitches(ctx, &quotav1.GetSwitchesRequest{})
		if err != nil || change == nil {
			return s.GetSwitches(), err
		}
		change(s.GetSwitches())
		next := &quotav1.Switches{Mode: s.Switches.Mode, DeniedTenants: s.Switches.DeniedTenants}
		set, err := admin.SetSwitches(ctx, &quotav1.SetSwitchesRequest{Switches: next, BaseRevision: s.Switches.Revision})
		if status.Code(err) != codes.Aborted {
			return set.GetSwitches(), err
		}
	}
	return nil, errors.New("the switches keep changing; try again")
}

func (c *cli) printSwitches(s *quotav1.Switches) error {
	if c.Output == "json" {
		return c.JSON(s)
	}
	c.Say("mode: %s\ndenied tenants: %s\n", strings.ToLower(strings.TrimPrefix(s.Mode.String(), "MODE_")), render.Dash(strings.Join(s.DeniedTenants, ", ")))
	if len(s.Pending) > 0 {
		c.Say("not yet in: %s (told when it is back)\n", strings.Join(s.Pending, ", "))
	}
	if s.File != "" {
		c.Say("overridden for this server's agents by %s\n", s.File)
	}
	return nil
}
