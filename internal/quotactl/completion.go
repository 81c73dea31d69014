package quotactl

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Bounds of completion. A shell waits for it, and shows a screen of names.
const (
	completionTimeout = time.Second
	completionNames   = 100
)

// names asks the server for the names of one kind that begin with a prefix. A description follows each after a tab.
type names func(ctx context.Context, admin quotav1.AdminServiceClient, prefix string) ([]string, error)

// completed are the commands' arguments that name something.
var completed = map[string][]names{
	"rollback": {versionNames}, "tenant set-plan": {tenantNames, planNames}, "tenant cancel": {tenantNames}, "tenant keep-plan": {tenantNames},
	"tenant plans": {tenantNames}, "tenant payers": {tenantNames}, "tenant suspend": {tenantNames}, "tenant resume": {tenantNames}, "tenant get": {tenantNames},
	"tenant delete": {tenantNames}, "tenant set-limit": {tenantNames, limitNames}, "tenant unset-limit": {tenantNames, limitNames},
	"statement show": {tenantNames}, "statement list": {tenantNames}, "credit give": {tenantNames}, "credit list": {tenantNames},
	"key revoke": {keyNames}, "key rotate": {keyNames}, "agents lost": {agentNames},
}

// repeated are the commands that take any number of names of one kind.
var repeated = map[string]names{"switch deny": tenantNames, "switch undeny": tenantNames}

// completedFlags are the flags whose values are names, of whichever command.
var completedFlags = map[string]names{
	"tenant": tenantNames, "parent": tenantNames, "deny": tenantNames, "plan": planNames, "to": planNames, "limit": limitNames, "meter": meterNames,
	"version": versionNames, "base": versionNames, "agent": agentNames,
}

// complete gives every command completion of its names.
func (c *cli) complete(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.complete(sub)
	}
	if cmd.HasSubCommands() {
		return
	}
	path := strings.TrimPrefix(cmd.CommandPath(), "quotactl ")
	kinds, each := completed[path], repeated[path]
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch {
		case each != nil:
			return c.lookUp(cmd, each, prefix)
		case len(args) < len(kinds):
			return c.lookUp(cmd, kinds[len(args)], prefix)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for flag, kind := range completedFlags {
		if f := cmd.Flags().Lookup(flag); f == nil || flag == "limit" && f.Value.Type() != "string" { // of lists it is how many
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return c.lookUp(cmd, kind, prefix)
		})
	}
}

// lookUp asks for names. It completes nothing if the server does not answer in time.
func (c *cli) lookUp(cmd *cobra.Command, kind names, prefix string) (found []string, _ cobra.ShellCompDirective) {
	c.conn.timeout = min(c.conn.timeout, completionTimeout)
	err := c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (err error) {
		found, err = kind(ctx, admin, prefix)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found = slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	return found[:min(len(found), completionNames)], cobra.ShellCompDirectiveNoFileComp
}

// tenantNames are one page of ids from the prefix on, because ids are in order.
func tenantNames(ctx context.Context, admin quotav1.AdminServiceClient, prefix string) (all []string, err error) {
	if prefix != "" { // the page is after an id, and this may be one
		if t, err := admin.GetTenant(ctx, &quotav1.GetTenantRequest{Id: prefix}); err == nil {
			all = append(all, t.Tenant.Id)
		}
	}
	resp, err := admin.ListTenants(ctx, &quotav1.ListTenantsRequest{PageToken: prefix, PageSize: completionNames})
	for _, t := range resp.GetTenants() {
		all = append(all, t.Id+"\t"+t.Plan)
	}
	return all, err
}

func planNames(ctx context.Context, admin quotav1.AdminServiceClient, _ string) (all []string, err error) {
	resp, err := admin.ListPlans(ctx, &quotav1.ListPlansRequest{})
	for _, p := range resp.GetPlans() {
		all = append(all, p.Name)
	}
	return all, err
}

// limitsInForce are the limits of all plans and of the top level.
func limitsInForce(ctx context.Context, admin quotav1.AdminServiceClient) ([]*quotav1.Limit, error) {
	resp, err := admin.ListPlans(ctx, &quotav1.ListPlansRequest{})
	all := slices.Clone(resp.GetLimits())
	for _, p := range resp.GetPlans() {
		all = append(all, p.Limits...)
	}
	return all, err
}

func limitNames(ctx context.Context, admin quotav1.AdminServiceClient, _ string) ([]string, error) {
	limits, err := limitsInForce(ctx, admin)
	return distinct(limits, (*quotav1.Limit).GetName), err
}

func meterNames(ctx context.Context, admin quotav1.AdminServiceClient, _ string) ([]string, error) {
	limits, err := limitsInForce(ctx, admin)
	return distinct(limits, (*quotav1.Limit).GetMeter), err
}

func distinct(limits []*quotav1.Limit, name func(*quotav1.Limit) string) []string {
	found := make(map[string]bool)
	for _, l := range limits {
		if n := name(l); n != "" {
			found[n] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func versionNames(ctx context.Context, admin quotav1.AdminServiceClient, _ string) (all []string, err error) {
	resp, err := admin.ListPolicyVersions(ctx, &quotav1.ListPolicyVersionsRequest{PageSize: completionNames})
	for _, v := range resp.GetVersions() {
		all = append(all, strconv.FormatInt(v.Version, 10)+"\t"+strings.TrimSpace(render.Stamp(v.CreatedMs)+" "+state(v)))
	}
	return all, err
}

func keyNames(ctx context.Context, admin quotav1.AdminServiceClient, _ string) (all []string, err error) {
	resp, err := admin.ListKeys(ctx, &quotav1.ListKeysRequest{})
	for _, k := range resp.GetKeys() {
		if k.RevokedMs == 0 {
			all = append(all, k.Id+"\t"+display.Escape(strings.TrimSpace(k.Role+" "+k.Note), ""))
		}
	}
	return all, err
}

func agentNames(ctx context.Context, admin quotav1.AdminServiceClient, _ string) (all []string, err error) {
	resp, err := admin.ListAgents(ctx, &quotav1.ListAgentsRequest{PageSize: completionNames})
	for _, a := range resp.GetAgents() {
		all = append(all, a.Id)
	}
	return slices.Compact(all), err
}
