package quotactl

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// pageSize is how many items a list asks for at once.
const pageSize = 1000

func (c *cli) getCommand() *cobra.Command {
	return group("get", "Print the policy, its versions, plans, tenants or agents",
		c.getPolicyCommand(), c.getVersionsCommand(), c.getPlansCommand(), c.getTenantsCommand(), c.getAgentsCommand())
}

func (c *cli) getPolicyCommand() *cobra.Command {
	var output string
	var number int64
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Print the policy in force, or an earlier version",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "yaml" && output != "json" {
				return misuse("--output must be yaml or json")
			}
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				p, err := admin.GetPolicy(ctx, &quotav1.GetPolicyRequest{Version: number})
				if err != nil {
					return err
				}
				if output == "json" {
					return c.writeDocument(p.GetPolicy())
				}
				return c.printDocument(p.GetPolicy())
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "print it as `FORMAT`: yaml (the document as it was applied) or json")
	cmd.Flags().Int64Var(&number, "version", 0, "the `VERSION` to print; 0 is the one in force")
	return cmd
}

// writeDocument prints a version as JSON.
func (c *cli) writeDocument(p *quotav1.PolicyVersion) error {
	return c.JSON(map[string]any{"version": p.Version, "author": p.Author, "created": render.Stamp(p.CreatedMs), "state": state(p), "document": p.Document})
}

// printDocument prints a document as it was applied. Which version it is goes beside it.
func (c *cli) printDocument(p *quotav1.PolicyVersion) error {
	which := state(p)
	if which != "" {
		which = ", " + which
	}
	c.Note("# version %d by %s, %s%s\n", p.Version, render.Dash(p.Author), render.Stamp(p.CreatedMs), which)
	text := p.Document
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(c.File(), text)
	return err
}

// state says what a version is now; nothing for a former version.
func state(p *quotav1.PolicyVersion) string {
	switch {
	case p.Shadow && p.Active:
		return "shadow"
	case p.Shadow:
		return "was shadow"
	case p.Active:
		return "in force"
	}
	return ""
}

func (c *cli) getVersionsCommand() *cobra.Command {
	var f render.Format
	var limit int32
	cmd := &cobra.Command{
		Use:   "versions",
		Short: "List policy versions, newest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.ListPolicyVersions(ctx, &quotav1.ListPolicyVersionsRequest{PageSize: limit})
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"VERSION", "STATE", "AUTHOR", "CREATED"}, Numbers: map[int]bool{0: true}}
				items := []map[string]any{}
				for _, v := range resp.Versions {
					t.Add(strconv.FormatInt(v.Version, 10), state(v), v.Author, render.Stamp(v.CreatedMs))
					items = append(items, map[string]any{"version": v.Version, "state": state(v), "author": v.Author, "created": render.Stamp(v.CreatedMs)})
				}
				return c.Write(f, t, items)
			})
		},
	}
	f.Table(cmd)
	cmd.Flags().Int32Var(&limit, "limit", 20, "how many versions, `N` from 1 to 1000")
	return cmd
}

func (c *cli) getPlansCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "plans",
		Short: "List the limits and plans in force, and what plans cost",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) error {
				resp, err := admin.ListPlans(ctx, &quotav1.ListPlansRequest{})
				if err != nil {
					return err
				}
				t := &render.Table{Header: []string{"PLAN", "LIMIT", "RATE", "BURST", "ALGORITHM", "BY", "MATCH", "METER", "OPTIONS"}, Numbers: map[int]bool{3: true}}
				add := func(name string, l *quotav1.Limit) {
					t.Add(name, l.Name, rateOf(l), strconv.FormatInt(l.Burst, 10), algorithm(l.Algorithm), strings.Join(l.By, " "), match(l), l.Meter, options(l))
				}
				every := "" // what is not of a plan has none
				if f == "table" {
					every = "(every plan)"
				}
				for _, l := range resp.Limits {
					add(every, l)
				}
				for _, p := range resp.Plans {
					name := p.Name
					if name == resp.DefaultPlan && f == "table" {
						name += " (default)"
					}
					for _, l := range p.Limits {
						add(name, l)
					}
					if len(p.Limits) == 0 {
						t.Add(name, "", "", "", "", "", "", "", "")
					}
				}
				if err := c.Write(f, t, resp); err != nil || f != "table" {
					return err
				}
				for _, p := range resp.Plans {
					if price := resp.Prices[p.Name]; price != "" {
						c.Say("%s costs %s\n", p.Name, price)
					}
				}
				return nil
			})
		},
	}
	f.Table(cmd)
	return cmd
}

func (c *cli) getTenantsCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "List tenants, their plans and overrides",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []*quotav1.Tenant
			faulty := make(map[string]string)
			for after := ""; ; {
				var resp *quotav1.ListTenantsResponse
				err := c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (err error) {
					resp, err = admin.ListTenants(ctx, &quotav1.ListTenantsRequest{PageSize: pageSize, PageToken: after})
					return err
				})
				if err != nil {
					return err
				}
				all = append(all, resp.Tenants...)
				maps.Copy(faulty, resp.Faulty)
				if after = resp.NextPageToken; after == "" {
					break
				}
			}
			t := &render.Table{Header: []string{"TENANT", "PLAN", "PARENT", "OVERRIDES", "SUSPENDED", "REVISION"}, Numbers: map[int]bool{5: true}}
			items := []map[string]any{}
			for _, tenant := range all {
				overrides := []string{}
				for _, l := range tenant.Overrides {
					o := l.Name
					if r := rateOf(l); r != "" {
						o += " " + r
					}
					overrides = append(overrides, o)
				}
				suspended := yes(tenant.Suspended)
				if tenant.Capped {
					suspended = "spending cap"
				}
				if tenant.Closed {
					suspended = "closed"
				}
				t.Add(tenant.Id, tenant.Plan, tenant.Parent, strings.Join(overrides, ", "), suspended, strconv.FormatInt(tenant.Revision, 10))
				item := map[string]any{"id": tenant.Id, "plan": tenant.Plan, "parent": tenant.Parent,
					"overrides": overrides, "suspended": tenant.Suspended, "capped": tenant.Capped, "closed": tenant.Closed, "revision": tenant.Revision}
				if why, ok := faulty[tenant.Id]; ok {
					item["faulty"] = why
				}
				items = append(items, item)
			}
			if err := c.Write(f, t, items); err != nil {
				return err
			}
			for _, id := range slices.Sorted(maps.Keys(faulty)) {
				c.Note("quotactl: tenant %s cannot be made out, and keeps what was in force: %s\n", id, faulty[id])
			}
			return nil
		},
	}
	f.Table(cmd)
	return cmd
}

func (c *cli) getAgentsCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List agents: what they settled, and through when",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []*quotav1.Agent
			for after := ""; ; {
				var resp *quotav1.ListAgentsResponse
				err := c.admin(cmd.Context(), func(ctx context.Context, admin quotav1.AdminServiceClient) (err error) {
					resp, err = admin.ListAgents(ctx, &quotav1.ListAgentsRequest{PageSize: pageSize, PageToken: after})
					return err
				})
				if err != nil {
					return err
				}
				all = append(all, resp.Agents...)
				if after = resp.NextPageToken; after == "" {
					break
				}
			}
			t := &render.Table{Header: []string{"AGENT", "EPOCH", "STATE", "REPORTS", "UNITS", "THROUGH", "SEEN", "KEY", "WHY"}, Numbers: map[int]bool{1: true, 3: true, 4: true}}
			items := []map[string]any{}
			for _, a := range all {
				t.Add(a.Id, strconv.FormatInt(a.Epoch, 10), a.State, strconv.FormatInt(a.Seq, 10), strconv.FormatInt(a.Total, 10), render.Stamp(a.ThroughMs), render.Stamp(a.SeenMs), a.Key, a.Reason)
				items = append(items, map[string]any{"id": a.Id, "epoch": a.Epoch, "state": a.State, "reports": a.Seq, "units": a.Total,
					"through": render.Stamp(a.ThroughMs), "seen": render.Stamp(a.SeenMs), "key": a.Key, "why": a.Reason})
			}
			return c.Write(f, t, items)
		},
	}
	f.Table(cmd)
	return cmd
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
