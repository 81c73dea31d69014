package quotactl

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// overrideFlags are the keys of an override by docs/policy.md. Each has a flag of its name.
var overrideFlags = []struct{ key, usage string }{
	{"rate", "units in a time, such as 5000/hour"},
	{"burst", "units that a full bucket holds; as a part of the rate what the plan's is if not given"},
	{"slots", "units in flight at once, of a concurrency limit"},
	{"algorithm", "how the limit counts, such as fixed_window"},
	{"enforcement", "hard, strict or soft"},
	{"overage", "how much a soft limit admits above itself: a percentage such as 20%, or unlimited"},
	{"epsilon", "how far all agents together may exceed the limit, such as 1%"},
	{"borrow", "units by which a bucket may be overdrawn"},
	{"lockout", "for how long a bucket denies everything once it is exceeded, such as 1m; 0s for none"},
	{"queue", "requests that may wait their turn on each agent"},
	{"wait", "the longest that one waits, such as 2s"},
	{"on_outage", "fallback, open or closed"},
	{"fallback_hold", "how long the share of a silent agent stays reserved, such as 30s"},
	{"first_touch", "credit, ask or admit"},
	{"on_change", "keep or prorate"},
	{"zone", "time zone of a calendar window, such as Europe/Berlin"},
	{"meter", "the meter that admitted units are counted on"},
	{"shadow", "true: decide and count, and never deny"},
	{"by", "attributes that tell buckets apart, such as '[user, ip/24]'"},
	{"match", `which requests it holds, such as '{endpoint: "POST /login*"}'`},
	{"allow", "requests that pass it by, such as '{ip: 10.0.0.0/8}'; '{}' for none"},
	{"deny", "requests that it denies outright, such as '{user: [mallory]}'; '{}' for none"},
	{"reserve", "the last part, kept from low priority, such as '{low: 20%}'; '{}' for none"},
	{"from", "when it comes in effect: a date (its midnight in UTC) or a time; at once if not given"},
	{"until", "when it ends; never if not given"},
}

func (c *cli) tenantSetLimitCommand() *cobra.Command {
	var add bool
	cmd := &cobra.Command{
		Use:   "set-limit ID LIMIT",
		Short: "Give a tenant another value of one limit than its plan has",
		Long: `set-limit overrides one limit of a tenant's plan, within a second. The flags replace an
earlier override of that limit; keys without a flag are the plan's. The flags are the keys
of a limit in a policy document (docs/policy.md).

A policy document that names the tenant and is applied again takes the override back.
set-limit warns of such a document.`,
		Example: "  quotactl tenant set-limit acme requests --rate 5000/hour\n  quotactl tenant set-limit acme requests --rate 5000/hour --until 2099-01-01\n  quotactl tenant set-limit acme exports --rate 3/day --algorithm fixed_window --add",
		Args:    exactly("ID", "LIMIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			values := make(map[string]string)
			for _, f := range overrideFlags {
				if flag := cmd.Flags().Lookup(flagOf(f.key)); flag.Changed {
					values[f.key] = flag.Value.String()
				}
			}
			if len(values) == 0 {
				return misuse("what does the override say? Give --rate, or another of the flags; unset-limit takes an override back")
			}
			return c.tenantLimit(cmd.Context(), args, func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.TenantLimitChange, error) {
				resp, err := admin.SetTenantLimit(ctx, &quotav1.SetTenantLimitRequest{Id: args[0], Limit: args[1], Values: values, Add: add})
				return resp.GetChange(), err
			})
		},
	}
	for _, f := range overrideFlags {
		cmd.Flags().Var(new(value), flagOf(f.key), f.usage)
	}
	cmd.Flags().BoolVar(&add, "add", false, "the plan has no such limit: add one of the tenant's own")
	cmd.Flags().SortFlags = false
	return cmd
}

func (c *cli) tenantUnsetLimitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unset-limit ID LIMIT",
		Short: "Take a tenant's override of one limit back: its plan's holds again",
		Args:  exactly("ID", "LIMIT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.tenantLimit(cmd.Context(), args, func(ctx context.Context, admin quotav1.AdminServiceClient) (*quotav1.TenantLimitChange, error) {
				resp, err := admin.UnsetTenantLimit(ctx, &quotav1.UnsetTenantLimitRequest{Id: args[0], Limit: args[1]})
				return resp.GetChange(), err
			})
		},
	}
}

// tenantLimit changes an override. It prints what changed, and what would take it back.
func (c *cli) tenantLimit(ctx context.Context, args []string, change func(context.Context, quotav1.AdminServiceClient) (*quotav1.TenantLimitChange, error)) error {
	return c.admin(ctx, func(ctx context.Context, admin quotav1.AdminServiceClient) error {
		resp, err := change(ctx, admin)
		if err != nil {
			return err
		}
		for _, w := range resp.Warnings {
			c.Note("quotactl: warning: %s\n", w)
		}
		if resp.Changed {
			return c.Tell(resp, "%s", lines(resp.Changes))
		}
		has := "has no override of limit"
		if slices.ContainsFunc(resp.Tenant.Overrides, func(l *quotav1.Limit) bool { return l.Name == args[1] }) {
			has = "has this override already of limit"
		}
		return c.Tell(resp, "nothing to change: tenant %s %s %s\n", resp.Tenant.Id, has, args[1])
	})
}

// flagOf is a key of a document as a flag.
func flagOf(key string) string { return strings.ReplaceAll(key, "_", "-") }

// value is a flag's text as it is given; the server checks it.
type value string

var _ pflag.Value = (*value)(nil)

// String, Set and Type make a flag of it.
func (v *value) String() string { return string(*v) }

// Set takes anything.
func (v *value) Set(s string) error {
	*v = value(s)
	return nil
}

// Type names the value in help.
func (v *value) Type() string { return "VALUE" }
