package quotactl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) keyCommand() *cobra.Command {
	return group("key", "Make, revoke and list bearer keys", c.keyCreateCommand(), c.keyRevokeCommand(), c.keyListCommand())
}

func (c *cli) keyCreateCommand() *cobra.Command {
	var role, agent, note string
	cmd := &cobra.Command{
		Use:   "create --role ROLE",
		Short: "Make a key; its secret is printed once",
		Long: `create makes a key and prints its secret, alone, on standard output. Only a hash
is stored: the secret cannot be had again.

Roles: viewer reads; operator also changes tenants and switches; admin also
changes the policy and keys; agent renews leases and settles usage, for one agent
id if --agent is given; backfill only brings in usage that no agent reported.`,
		Example: "  quotactl key create --role viewer --note grafana\n  QUOTA_KEY=$(quotactl key create --role agent --agent gateway-1)",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role == "" {
				return misuse("which role? Give --role viewer, operator, admin, agent or backfill")
			}
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.CreateKey(ctx, &quotav1.CreateKeyRequest{Role: role, Agent: agent, Note: note})
				if err != nil {
					return err
				}
				fmt.Fprintf(c.Err, "key %s with the role %s%s; keep the secret, it cannot be had again\n", resp.Key.Id, resp.Key.Role, bound(resp.Key))
				fmt.Fprintln(c.Out, resp.Secret)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "viewer, operator, admin, agent or backfill")
	cmd.Flags().StringVar(&agent, "agent", "", "bind an agent's key to this agent id; any agent if not given")
	cmd.Flags().StringVar(&note, "note", "", "what the key is for, at most 256 bytes")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "operator", "admin", "agent", "backfill"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func bound(k *quotav1.Key) string {
	if k.Agent == "" {
		return ""
	}
	return " for " + k.Agent
}

func (c *cli) keyRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End a key, within a second",
		Args:  exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				k, err := admin.RevokeKey(ctx, &quotav1.RevokeKeyRequest{Id: args[0]})
				if err != nil {
					return err
				}
				fmt.Fprintf(c.Out, "key %s is revoked since %s\n", k.Id, stamp(k.RevokedMs))
				return nil
			})
		},
	}
}

func (c *cli) keyListCommand() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keys, without their secrets",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.ListKeys(ctx, &quotav1.ListKeysRequest{})
				if err != nil {
					return err
				}
				t := &table{header: []string{"ID", "ROLE", "AGENT", "NOTE", "CREATED", "REVOKED"}}
				items := []map[string]any{}
				for _, k := range resp.Keys {
					t.add(k.Id, k.Role, k.Agent, k.Note, stamp(k.CreatedMs), stamp(k.RevokedMs))
					items = append(items, map[string]any{"id": k.Id, "role": k.Role, "agent": k.Agent, "note": k.Note,
						"created": stamp(k.CreatedMs), "revoked": k.RevokedMs != 0})
				}
				return c.write(f, t, items)
			})
		},
	}
	f.flag(cmd)
	return cmd
}
