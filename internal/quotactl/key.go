package quotactl

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) keyCommand() *cobra.Command {
	return group("key", "Make, rotate, revoke and list bearer keys", c.keyCreateCommand(), c.keyRotateCommand(), c.keyRevokeCommand(), c.keyListCommand())
}

func (c *cli) keyCreateCommand() *cobra.Command {
	var role, agent, note string
	var tenants, limits []string
	var subtree bool
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create --role ROLE",
		Short: "Make a key; its secret is printed once",
		Long: `create makes a key and prints its secret, alone, on standard output. Only a hash
is stored, so the secret cannot be printed again.

Roles: viewer reads; operator also changes tenants and switches; admin also
changes the policy and keys; agent renews leases and settles usage, for the agent
that --agent names; backfill only brings in usage that no agent reported.

With --tenant the key is for these tenants only, and knows of no others; with
--limit an agent's is for these limits only. The first key of an open server must
be an admin's.`,
		Example: `  quotactl key create --role viewer --note grafana
  quotactl key create --role viewer --tenant umbrella --subtree --expires 720h
  QUOTA_KEY=$(quotactl key create --role agent --agent gateway-1)`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role == "" {
				return misuse("which role? Give --role viewer, operator, admin, agent or backfill")
			}
			req := &quotav1.CreateKeyRequest{Role: role, Agent: agent, Note: note, Tenants: tenants, Subtree: subtree, Limits: limits}
			if expires < 0 {
				return misuse("--expires is %s; it must be above 0", expires)
			}
			if expires > 0 {
				req.ExpiresMs = time.Now().Add(expires).UnixMilli()
			}
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.CreateKey(ctx, req)
				if err != nil {
					return err
				}
				return c.secret(ctx, admin, resp.Key, resp.Secret, "key %s with the role %s%s", resp.Key.Id, resp.Key.Role, bound(resp.Key))
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "what the key may do, a `ROLE`: viewer, operator, admin, agent or backfill; needed")
	cmd.Flags().StringVar(&agent, "agent", "", "the `AGENT` that an agent's key speaks for: an id, or a prefix of ids followed by *; needed for that role")
	cmd.Flags().StringSliceVar(&tenants, "tenant", nil, "make the key for these `TENANTS` only: ids, or prefixes of ids followed by *; several with commas")
	cmd.Flags().BoolVar(&subtree, "subtree", false, "with --tenant: and for all tenants below them")
	cmd.Flags().StringSliceVar(&limits, "limit", nil, "make an agent's key for these `LIMITS` only: names, or prefixes of names followed by *; several with commas")
	cmd.Flags().DurationVar(&expires, "expires", 0, "the `DURATION` after which the key ends by itself, such as 720h; never if not given")
	cmd.Flags().StringVar(&note, "note", "", "a `TEXT` that says what the key is for, at most 256 bytes")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "operator", "admin", "agent", "backfill"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// secret prints a new key's secret; a description of the key goes beside it. If writing fails nobody has read the
// secret, and the key is revoked.
func (c *cli) secret(ctx context.Context, admin quotav1.AdminServiceClient, k *quotav1.Key, secret, format string, args ...any) (err error) {
	id := k.Id
	if c.Output == "json" {
		err = c.JSON(map[string]any{"id": id, "role": k.Role, "agent": k.Agent, "note": k.Note, "secret": secret})
	} else {
		_, err = io.WriteString(c.Out, secret+"\n")
	}
	if err == nil {
		c.Note(format+"; keep the secret, it cannot be had again\n", args...)
		return nil
	}
	if _, failed := admin.RevokeKey(ctx, &quotav1.RevokeKeyRequest{Id: id}); failed != nil {
		return fmt.Errorf("the secret of key %s could not be written and is lost: %w; revoke the key: quotactl key revoke %s (%w)", id, err, id, failed)
	}
	return fmt.Errorf("the secret of key %s could not be written and is lost: %w; the key is revoked", id, err)
}

func bound(k *quotav1.Key) string {
	if k.Agent == "" {
		return ""
	}
	return " for " + k.Agent
}

func (c *cli) keyRotateCommand() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Make a key's successor; its secret is printed once",
		Long: `rotate makes a key with the rights of another, and prints its secret, alone, on standard
output. The old key is good until the overlap is over, and then ends.`,
		Example: "  quotactl key rotate k7f3q --overlap 24h",
		Args:    exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.RotateKey(ctx, &quotav1.RotateKeyRequest{Id: args[0], OverlapMs: overlap.Milliseconds()})
				if err != nil {
					return err
				}
				return c.secret(ctx, admin, resp.Key, resp.Secret, "key %s takes the place of %s, which ends in %s", resp.Key.Id, args[0], overlap)
			})
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", time.Hour, "the `DURATION` for which both keys are good, up to 2160h; 0 ends the old one at once")
	return cmd
}

// scopeOf describes what a key is for; empty for everything.
func scopeOf(k *quotav1.Key) string {
	var parts []string
	if len(k.Tenants) > 0 {
		part := "tenants " + strings.Join(k.Tenants, ",")
		if k.Subtree {
			part += " and below"
		}
		parts = append(parts, part)
	}
	if len(k.Limits) > 0 {
		parts = append(parts, "limits "+strings.Join(k.Limits, ","))
	}
	return strings.Join(parts, "; ")
}

// endOf is when a key ends or ended; empty for a key without an end.
func endOf(k *quotav1.Key) string {
	switch {
	case k.RevokedMs != 0:
		return "revoked " + render.Stamp(k.RevokedMs)
	case k.ExpiresMs != 0:
		return render.Stamp(k.ExpiresMs)
	}
	return ""
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
				return c.Tell(k.GetKey(), "key %s is revoked since %s\n", k.Key.Id, render.Stamp(k.Key.RevokedMs))
			})
		},
	}
}

func (c *cli) keyListCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keys, without their secrets",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				t := &render.Table{Header: []string{"ID", "ROLE", "AGENT", "FOR", "NOTE", "CREATED", "USED", "END"}}
				items := []map[string]any{}
				for after := ""; ; {
					resp, err := admin.ListKeys(ctx, &quotav1.ListKeysRequest{PageSize: 1000, PageToken: after})
					if err != nil {
						return err
					}
					for _, k := range resp.Keys {
						t.Add(k.Id, k.Role, k.Agent, scopeOf(k), k.Note, render.Stamp(k.CreatedMs), render.Stamp(k.UsedMs), endOf(k))
						items = append(items, map[string]any{"id": k.Id, "role": k.Role, "agent": k.Agent, "note": k.Note,
							"tenants": append([]string{}, k.Tenants...), "subtree": k.Subtree, "limits": append([]string{}, k.Limits...), "created": render.Stamp(k.CreatedMs), "revoked": k.RevokedMs != 0,
							"expires": render.Stamp(k.ExpiresMs), "used": render.Stamp(k.UsedMs), "successor": k.Successor})
					}
					if after = resp.NextPageToken; after == "" {
						break
					}
				}
				return c.Write(f, t, items)
			})
		},
	}
	f.Table(cmd)
	return cmd
}
