package quotactl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (c *cli) alertCommand() *cobra.Command {
	return group("alert", "List events of quotas, spending and denials, and deliver them again",
		c.alertListCommand(), c.alertShowCommand(), c.alertRetryCommand(), c.alertTestCommand())
}

// alerts calls f with the alert service and a deadline.
func (c *cli) alerts(ctx context.Context, f func(context.Context, quotav1.AlertServiceClient) error) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.conn.timeout)
	defer cancel()
	return f(ctx, quotav1.NewAlertServiceClient(conn))
}

func (c *cli) alertListCommand() *cobra.Command {
	var f render.Format
	req := &quotav1.ListAlertsRequest{}
	limit, follow := 50, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print events, newest first",
		Long: `list prints events: each alert once for a tenant, threshold and period. --after N prints
events above a number, oldest first, so that a reader that goes on from the last one skips
none. --follow goes on printing events as they come, a line each.`,
		Example: "  quotactl alert list --tenant acme\n  quotactl alert list --state dead",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return misuse("--limit must be at least 1")
			}
			if follow {
				if req.Alert != "" || req.State != "" {
					return misuse("--follow goes with --after and --tenant alone")
				}
				return c.followAlerts(cmd.Context(), f, req)
			}
			req.Forward = cmd.Flags().Changed("after")
			t := &render.Table{Header: []string{"NUMBER", "TIME", "ALERT", "TENANT", "THRESHOLD", "PERIOD", "USED", "OF", "ACTION"}, Numbers: map[int]bool{0: true, 4: true, 6: true, 7: true}}
			items := []map[string]any{}
			for len(items) < limit {
				req.PageSize = int32(min(limit-len(items), pageSize))
				var resp *quotav1.ListAlertsResponse
				err := c.alerts(cmd.Context(), func(ctx context.Context, client quotav1.AlertServiceClient) (err error) {
					resp, err = client.ListAlerts(ctx, req)
					return err
				})
				if err != nil {
					return err
				}
				for _, a := range resp.Alerts {
					t.Add(strconv.FormatInt(a.Number, 10), render.Stamp(a.AtMs), a.Alert, render.Dash(a.Tenant), render.Dash(a.Threshold), render.Dash(a.Period), render.Dash(a.Used), render.Dash(a.Of), render.Dash(a.Action))
					items = append(items, alertItem(a))
				}
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					break
				}
			}
			return c.Write(f, t, items)
		},
	}
	cmd.Flags().StringVar(&req.Tenant, "tenant", "", "events of this `TENANT` alone")
	cmd.Flags().StringVar(&req.Alert, "alert", "", "events of this `ALERT` of the policy alone; spending_cap for spending caps")
	cmd.Flags().StringVar(&req.State, "state", "", "events with a delivery in this `STATE`: pending, delivered or dead")
	cmd.Flags().Int64Var(&req.After, "after", 0, "events above this `NUMBER`, oldest first")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many events, `N` from 1 up")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on printing as events come, oldest first, until interrupted")
	f.Table(cmd)
	return cmd
}

// followAlerts prints events as they come.
func (c *cli) followAlerts(ctx context.Context, f render.Format, req *quotav1.ListAlertsRequest) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	stream, err := quotav1.NewAlertServiceClient(conn).WatchAlerts(ctx, &quotav1.WatchAlertsRequest{After: req.After, Tenant: req.Tenant})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) { // the server stops
			return nil
		}
		if err != nil {
			select {
			case <-ctx.Done():
				return nil // interrupted
			default:
				return err
			}
		}
		a := resp.Alert
		if f == "json" {
			err = json.NewEncoder(c.Out).Encode(alertItem(a))
		} else {
			c.Say("%d %s %s\n", a.Number, render.Stamp(a.AtMs), alertWords(a))
			err = c.Failed()
		}
		if err != nil {
			return err
		}
	}
}

// alertWords describes an event in a line.
func alertWords(a *quotav1.Alert) string {
	var words []string
	for _, w := range []string{a.Alert, a.Tenant, a.Threshold} {
		if w != "" {
			words = append(words, w)
		}
	}
	s := strings.Join(words, " ")
	if a.Used != "" {
		s += fmt.Sprintf(": %s of %s in %s", a.Used, a.Of, a.Period)
	}
	if a.Action != "" {
		s += ", " + a.Action
	}
	return s
}

func alertItem(a *quotav1.Alert) map[string]any {
	return map[string]any{"number": a.Number, "id": a.Id, "at": render.Stamp(a.AtMs), "kind": a.Kind, "alert": a.Alert, "tenant": a.Tenant, "plan": a.Plan, "limit": a.Limit,
		"threshold": a.Threshold, "period": a.Period, "used": a.Used, "of": a.Of, "action": a.Action, "height": a.Height}
}

// alertNumber reads the number of an event.
func alertNumber(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, misuse("%q is no number of an event", s)
	}
	return n, nil
}

func (c *cli) alertShowCommand() *cobra.Command {
	var f render.Format
	cmd := &cobra.Command{
		Use:   "show NUMBER",
		Short: "Print an event, and what became of its deliveries",
		Args:  exactly("NUMBER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := alertNumber(args[0])
			if err != nil {
				return err
			}
			return c.alerts(cmd.Context(), func(ctx context.Context, client quotav1.AlertServiceClient) error {
				a, err := client.GetAlert(ctx, &quotav1.GetAlertRequest{Number: n})
				if err != nil {
					return err
				}
				return c.printAlert(f, a.GetAlert())
			})
		},
	}
	f.Table(cmd)
	return cmd
}

// printAlert prints an event's deliveries, and the event itself beside them.
func (c *cli) printAlert(f render.Format, a *quotav1.Alert) error {
	t := &render.Table{Header: []string{"WEBHOOK", "STATE", "ATTEMPTS", "TRIED", "STATUS", "NEXT", "ERROR"}, Numbers: map[int]bool{2: true}}
	items := []map[string]any{}
	for _, d := range a.Deliveries {
		status := ""
		if d.Status != 0 {
			status = strconv.Itoa(int(d.Status))
		}
		t.Add(d.Webhook, d.State, strconv.Itoa(int(d.Attempts)), render.Dash(render.Stamp(d.TriedMs)), render.Dash(status), render.Dash(render.Stamp(d.NextMs)), render.Dash(d.Error))
		items = append(items, map[string]any{"webhook": d.Webhook, "state": d.State, "attempts": d.Attempts, "tried": render.Stamp(d.TriedMs), "status": d.Status, "next": render.Stamp(d.NextMs), "error": d.Error})
	}
	c.Note("alert %d of %s: %s\n", a.Number, render.Stamp(a.AtMs), alertWords(a))
	return c.Write(f, t, items)
}

func (c *cli) alertRetryCommand() *cobra.Command {
	var f render.Format
	req := &quotav1.RetryAlertRequest{}
	cmd := &cobra.Command{
		Use:   "retry NUMBER",
		Short: "Deliver an event again where it is dead or waits",
		Args:  exactly("NUMBER"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Number, err = alertNumber(args[0]); err != nil {
				return err
			}
			return c.alerts(cmd.Context(), func(ctx context.Context, client quotav1.AlertServiceClient) error {
				a, err := client.RetryAlert(ctx, req)
				if err != nil {
					return err
				}
				return c.printAlert(f, a.GetAlert())
			})
		},
	}
	cmd.Flags().StringVar(&req.Webhook, "webhook", "", "to this `WEBHOOK` of the policy alone; to all that it is for if not given")
	f.Table(cmd)
	return cmd
}

func (c *cli) alertTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test WEBHOOK",
		Short: "Send a test to a webhook",
		Long:  `test makes an event for one webhook, delivered like any other. show prints its delivery.`,
		Args:  exactly("WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.alerts(cmd.Context(), func(ctx context.Context, client quotav1.AlertServiceClient) error {
				a, err := client.TestWebhook(ctx, &quotav1.TestWebhookRequest{Webhook: args[0]})
				if err != nil {
					return err
				}
				return c.Tell(a.GetAlert(), "alert %d is on its way to %s: quotactl alert show %d\n", a.Alert.Number, args[0], a.Alert.Number)
			})
		},
	}
}
