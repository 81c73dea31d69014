package statements

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/rpc"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// What is due is closed tenant by tenant; who comes later, after a run that broke off or
// beside another, finds the rest, and every period is closed once.
func TestCloseDue(t *testing.T) {
	b := newBilled(t)
	for _, id := range []string{"b", "c", "d"} {
		if _, err := b.Policy.CreateTenant(t.Context(), "ann", id, "paid", ""); err != nil {
			t.Fatal(err)
		}
	}
	b.Settle("gw-1", b.At, 500, b.At)
	b.At = time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)
	b.Settle("gw-2", time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC), 5, time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC))
	b.At = b.At.Add(2 * time.Hour) // October and November have ended
	call := func(req *quotav1.CloseDueRequest) (closed, refused []string, next string) {
		t.Helper()
		resp, err := b.s.CloseDue(servertest.AsAnn(t.Context()), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range resp.Closed {
			if c.Document != "" || c.Digest == "" {
				t.Errorf("closed: %v", c)
			}
			closed = append(closed, c.Tenant+" "+c.Period)
		}
		for _, r := range resp.Refused {
			refused = append(refused, r.Tenant+" "+r.Period+" "+r.Reason)
		}
		return closed, refused, resp.NextPageToken
	}
	closed, refused, _ := call(&quotav1.CloseDueRequest{DryRun: true})
	if len(closed) != 3 || len(refused) != 1 || !strings.Contains(refused[0], "acme 2026-10 invalid: usage of tenant acme is not complete") || !strings.Contains(refused[0], "gw-2") {
		t.Fatalf("while an agent lags: %v, %v", closed, refused)
	}
	b.Settle("gw-2", b.At, 0, b.At)
	if closed, _, _ := call(&quotav1.CloseDueRequest{DryRun: true}); len(closed) != 4 {
		t.Errorf("a dry run: %v", closed)
	}
	if closed, _, _ := call(&quotav1.CloseDueRequest{GraceMs: (40 * 24 * time.Hour).Milliseconds()}); len(closed) != 0 {
		t.Errorf("within the grace: %v", closed)
	}
	closed, _, next := call(&quotav1.CloseDueRequest{PageSize: 2})
	if strings.Join(closed, ", ") != "acme 2026-10, acme 2026-11, b 2026-10, b 2026-11" || next != "b" {
		t.Errorf("the first two: %v, then %q", closed, next)
	}
	// It breaks off here. A closer begins at the first, while another server leads no more.
	c, err := NewCloser(b.s, 24*time.Hour, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if lead, err := b.Policy.Lead(t.Context(), "close statements", "another", time.Minute); err != nil || !lead {
		t.Fatal(lead, err)
	}
	count := func() (n int) {
		t.Helper()
		for _, id := range []string{"acme", "b", "c", "d"} {
			list, err := b.Policy.Statements(t.Context(), id, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			n += len(list)
		}
		return n
	}
	for _, want := range []int{4, 6, 6, 8} { // beside the leader; c and d's October; again; November, a day after its end
		if err := c.round(t.Context()); err != nil || count() != want {
			t.Errorf("at %s: %d statements, %v, want %d", b.At, count(), err, want)
		}
		if want == 4 {
			b.At = b.At.Add(2 * time.Minute)
		}
		if want == 6 {
			b.At = b.At.Add(12 * time.Hour)
			b.Settle("gw-2", b.At, 0, b.At)
		}
	}
	if closed, refused, _ := call(&quotav1.CloseDueRequest{}); len(closed)+len(refused) != 0 {
		t.Errorf("all is closed: %v, %v", closed, refused)
	}
	audit, err := b.Policy.Audit(t.Context(), policystore.AuditQuery{N: 100, Action: "statement.close", Actor: rpc.Actor})
	if err != nil || len(audit) != 4 {
		t.Errorf("%d audit rows of the closer, %v, want 4", len(audit), err)
	}
}

// Past periods under other prices, and under another plan, by the same usage.
func TestSimulate(t *testing.T) {
	b := newBilled(t)
	b.At = time.Date(2026, 10, 16, 12, 0, 0, 0, time.UTC) // half of October
	if _, err := b.Policy.SetTenantPlan(t.Context(), "ann", "acme", "paid"); err != nil {
		t.Fatal(err)
	}
	b.Settle("gw-1", b.At, 900, b.At)
	b.At = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 100, b.At)
	b.At = time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 0, b.At)
	got := func(req *quotav1.SimulateRequest) (text string) {
		t.Helper()
		resp, err := b.s.Simulate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.Periods {
			text += p.Tenant + " " + p.Period + " " + p.WasText + " > " + p.WouldBeText + " (" + p.DifferenceText + "); "
		}
		return text
	}
	next := strings.ReplaceAll(strings.ReplaceAll(servertest.PricedPolicy, "31.00 USD", "62.00 USD"), "unit: 0.05", "unit: 0.04")
	if got, want := got(&quotav1.SimulateRequest{Document: next, Periods: 5}), "acme 2026-10 60.50 USD > 67.00 USD (6.50 USD); acme 2026-11 36.00 USD > 66.00 USD (30.00 USD); "; got != want {
		t.Errorf("other prices:\n got %s\nwant %s", got, want)
	}
	if got, want := got(&quotav1.SimulateRequest{Tenant: "acme", Plan: "free"}), "acme 2026-11 36.00 USD > 0.00 USD (-36.00 USD); "; got != want {
		t.Errorf("another plan:\n got %s\nwant %s", got, want)
	}
	if got, want := got(&quotav1.SimulateRequest{Tenant: "acme", Plan: "paid", Periods: 2}), "acme 2026-10 60.50 USD > 76.00 USD (15.50 USD); acme 2026-11 36.00 USD > 36.00 USD (0.00 USD); "; got != want {
		t.Errorf("its plan from the beginning:\n got %s\nwant %s", got, want)
	}
}

// A tenant whose statement cannot be made is told of, once in the log, and stops no other.
func TestOneTenantStopsNoOther(t *testing.T) {
	b := newBilled(t)
	for _, id := range []string{"b", "c", "d"} {
		if _, err := b.Policy.CreateTenant(t.Context(), "ann", id, "paid", ""); err != nil {
			t.Fatal(err)
		}
	}
	// A zone that this server does not know: a newer one took it.
	db := b.Ledger.(*sqliteledger.Store).DB()
	if _, err := db.ExecContext(t.Context(), `UPDATE tenants SET billing = '{"zone":"America/Nowhere"}' WHERE id = 'b'`); err != nil {
		t.Fatal(err)
	}
	b.Settle("gw-1", b.At, 5, b.At)
	b.At = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 0, b.At)
	var log bytes.Buffer
	c, err := NewCloser(b.s, time.Hour, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.round(t.Context()); err != nil {
			t.Error("round:", err)
		}
	}
	for _, id := range []string{"acme", "c", "d"} {
		if list, err := b.Policy.Statements(t.Context(), id, 0, 10); err != nil || len(list) != 1 {
			t.Errorf("tenant %s: %d statements, %v, want 1", id, len(list), err)
		}
	}
	if n := strings.Count(log.String(), "cannot be made"); n != 1 || !strings.Contains(log.String(), "America/Nowhere") {
		t.Errorf("%d lines tell of the fault, want 1:\n%s", n, log.String())
	}
	resp, err := b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{})
	if err != nil || len(resp.Refused) != 1 || resp.Refused[0].Tenant != "b" || !strings.Contains(resp.Refused[0].Reason, "America/Nowhere") {
		t.Errorf("by hand: %v, %v", resp, err)
	}
	// When the stores do not answer, that is no tenant's fault.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if resp, err := b.s.CloseDue(servertest.AsAnn(gone), &quotav1.CloseDueRequest{}); err == nil {
		t.Errorf("a caller that has gone: %v", resp)
	}
}

// A billing that another build wrote, and this one writes otherwise, is a conflict however often it is tried.
func TestConflictsEnd(t *testing.T) {
	b := newBilled(t)
	b.Settle("gw-1", b.At, 5, b.At)
	if _, err := b.Ledger.(*sqliteledger.Store).DB().ExecContext(t.Context(), `UPDATE tenants SET billing = '{"zone":"Asia/Kolkata","later":1}' WHERE id = 'acme'`); err != nil {
		t.Fatal(err)
	}
	b.At = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 0, b.At)
	ctx, cancel := context.WithTimeout(servertest.AsAnn(t.Context()), 10*time.Second)
	defer cancel()
	resp, err := b.s.CloseDue(ctx, &quotav1.CloseDueRequest{})
	if err != nil || len(resp.Refused) != 1 || !strings.Contains(resp.Refused[0].Reason, "changed while") {
		t.Errorf("%v, %v, want a refusal", resp, err)
	}
}

// What changes while a period is closed has it made again, not refused.
func TestConflictsAreTriedAgain(t *testing.T) {
	b := newBilled(t)
	b.Settle("gw-1", b.At, 5, b.At)
	b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	b.Settle("gw-1", b.At, 0, b.At)
	b.s.policy = &changing{Store: b.Policy, first: func() {
		if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: free, billing: {zone: Asia/Kolkata}}", 1)); err != nil {
			t.Error(err)
		}
	}}
	resp, err := b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{})
	if err != nil || len(resp.Refused) != 0 || len(resp.Closed) != 1 || resp.Closed[0].ToMs != time.Date(2026, 10, 31, 18, 30, 0, 0, time.UTC).UnixMilli() {
		t.Errorf("%v, %v, want October in Kolkata", resp, err)
	}
}

// changing does something before the first statement that it keeps.
type changing struct {
	policystore.Store
	first func()
}

func (c *changing) CloseStatement(ctx context.Context, actor string, closed terms.Closed, carried []billing.Carried, burns ...billing.Burn) (terms.Closed, error) {
	if first := c.first; first != nil {
		c.first = nil
		first()
	}
	return c.Store.CloseStatement(ctx, actor, closed, carried, burns...)
}

// Periods of other tenants are closed, and its own too: what is billed is not in its overrides.
func TestFaultyTenantDue(t *testing.T) { servertest.OnEngines(t, testFaultyTenantDue) }

func testFaultyTenantDue(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	servertest.Spoil(t, b.Ledger, "acme")
	resp, err := b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{DryRun: true})
	if err != nil || resp.Tenants != 1 {
		t.Errorf("looked at %d tenants: %v", resp.GetTenants(), err)
	}
}
