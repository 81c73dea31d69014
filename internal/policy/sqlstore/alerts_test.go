package sqlstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/sqlstore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// stores runs a test on an empty store of each engine.
func stores(t *testing.T, test func(t *testing.T, s *sqlstore.Store)) {
	t.Run("SQLite", func(t *testing.T) { test(t, sqlstore.New(openSQLite(t), sqlstore.SQLite, nil)) })
	t.Run("Postgres", func(t *testing.T) { test(t, sqlstore.New(openPostgres(t), sqlstore.Postgres, nil)) })
}

func applied(t *testing.T, s *sqlstore.Store, text string) policystore.Applied {
	t.Helper()
	doc, err := policy.Parse("", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Apply(t.Context(), "ann", doc, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func event(name, tenant string, threshold int64, webhooks ...string) alert.Event {
	return alert.Event{ID: fmt.Sprint("alr_", name, tenant, threshold, time.Now().UnixNano()), Kind: alert.KindQuota, Alert: name, Tenant: tenant, Threshold: threshold, Period: "2026-11", Used: threshold, Of: 1_000_000, Webhooks: webhooks}
}

// Of many who raise the same events at once each is kept once, in its order, with its deliveries.
func TestAlertsAreRaisedOnce(t *testing.T) {
	stores(t, func(t *testing.T, s *sqlstore.Store) {
		ctx := t.Context()
		var all sync.WaitGroup
		var mu sync.Mutex
		raised := 0
		for range 4 {
			all.Go(func() {
				for i := range 5 {
					got, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: []alert.Event{event("x", "acme", int64(500_000+i), "ops", "crm"), event("y", "acme", int64(500_000+i))}}})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					raised += len(got)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		list, err := s.Events(ctx, alert.Query{Forward: true, N: 100})
		if err != nil || raised != 10 || len(list) != 10 {
			t.Fatalf("%d raised, %d kept, %v; want 10", raised, len(list), err)
		}
		for i, e := range list {
			if e.Number != int64(i)+1 || e.Body == "" {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		if list[0].Alert != "x" || list[1].Alert != "y" || list[2].Threshold != 500_001 {
			t.Errorf("order: %+v", list[:3])
		}
		pending, dead, err := s.Count(ctx)
		if err != nil || pending != 10 || dead != 0 {
			t.Errorf("deliveries: %d pending, %d dead, %v", pending, dead, err)
		}
		for what, c := range map[string]struct {
			q    alert.Query
			want []int64
		}{
			"newest first": {alert.Query{N: 3}, []int64{10, 9, 8}}, "before": {alert.Query{N: 2, Before: 8}, []int64{7, 6}},
			"after": {alert.Query{N: 2, After: 8, Forward: true}, []int64{9, 10}}, "at the end": {alert.Query{After: 10, Forward: true, N: 5}, nil},
			"of an alert": {alert.Query{N: 2, Alert: "x"}, []int64{9, 7}}, "of a tenant": {alert.Query{N: 2, Tenant: "zeta"}, nil},
			"with deliveries": {alert.Query{N: 2, State: alert.Pending, Before: 9}, []int64{7, 5}}, "dead": {alert.Query{N: 2, State: alert.Dead}, nil},
		} {
			got, err := s.Events(ctx, c.q)
			if err != nil {
				t.Fatal(err)
			}
			var numbers []int64
			for _, e := range got {
				numbers = append(numbers, e.Number)
			}
			if fmt.Sprint(numbers) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v, want %v", what, numbers, c.want)
			}
		}
		if _, err := s.Event(ctx, 99); !errors.Is(err, policystore.ErrNotFound) {
			t.Errorf("one that is not there: %v", err)
		}
		for _, currency := range []string{"USD", "EUR", "USD"} { // as much of another currency is something else
			e := event("z", "acme", 1_000_000)
			e.Kind, e.Currency = alert.KindSpending, currency
			if _, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: []alert.Event{e}}}); err != nil {
				t.Error(err)
			}
		}
		if of, err := s.Events(ctx, alert.Query{N: 9, Alert: "z"}); err != nil || len(of) != 2 {
			t.Errorf("of two currencies: %+v, %v", of, err)
		}
	})
}

// A delivery is claimed by one, is nobody else's until its time, and what an old claimer
// says of it is not kept.
func TestDeliveriesAreClaimed(t *testing.T) {
	stores(t, func(t *testing.T, s *sqlstore.Store) {
		ctx, now := t.Context(), time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())
		if _, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: []alert.Event{event("x", "acme", 1, "ops", "crm"), event("x", "acme", 2, "ops")}}}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		got := 0
		for range 4 {
			all.Go(func() {
				due, err := s.Claim(ctx, "ops", now, now.Add(time.Minute), 10)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got += len(due)
			})
		}
		all.Wait()
		if got != 2 {
			t.Errorf("claimed %d times, want 2", got)
		}
		// Many at once, who read the same before any of them writes.
		var many []alert.Event
		for i := range int64(200) {
			many = append(many, event("many", "acme", i, "busy"))
		}
		if _, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: many}}); err != nil {
			t.Fatal(err)
		}
		got = 0
		both := make(chan struct{})
		for range 2 { // as many as have a connection already
			all.Go(func() {
				<-both
				due, err := s.Claim(ctx, "busy", now, now.Add(time.Minute), 1000)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got += len(due)
			})
		}
		close(both)
		all.Wait()
		if got != len(many) {
			t.Errorf("claimed %d times, want %d", got, len(many))
		}
		claim := func(at time.Time, want int) []alert.Delivery {
			t.Helper()
			due, err := s.Claim(ctx, "ops", at, at.Add(time.Minute), 10)
			if err != nil || len(due) != want {
				t.Fatalf("at %s: %+v, %v, want %d", at, due, err, want)
			}
			return due
		}
		claim(now.Add(59*time.Second), 0)
		second := claim(now.Add(time.Minute), 2)
		if second[0].Number != 1 || second[0].Attempts != 2 || second[0].Body == "" || second[0].Tenant != "acme" {
			t.Errorf("claimed again: %+v", second[0])
		}
		late := second[0]
		late.State, late.Attempts = alert.Delivered, 1
		if err := s.Tried(ctx, now.Add(time.Minute), late); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Event(ctx, 1); err != nil || e.Deliveries[1].State != alert.Pending {
			t.Errorf("after what an old claimer said: %+v, %v", e, err)
		}
		done := second[0]
		done.State, done.Status, done.Tried, done.Next = alert.Delivered, 200, now, now
		if err := s.Tried(ctx, second[0].Next, done); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Event(ctx, 1); err != nil || e.Deliveries[1].State != alert.Delivered || e.Deliveries[1].Status != 200 || e.Deliveries[0].Webhook != "crm" {
			t.Errorf("delivered: %+v, %v", e, err)
		}
		if n, err := s.Orphan(ctx, []string{"crm", "busy"}, time.Now().Add(-time.Minute), "gone"); err != nil || n != 0 {
			t.Errorf("orphans that are new: %d, %v", n, err)
		}
		if n, err := s.Orphan(ctx, []string{"crm", "busy"}, time.Now().Add(time.Minute), "gone"); err != nil || n != 1 {
			t.Errorf("orphans: %d, %v", n, err)
		}
		e, err := s.Retry(ctx, "ann", 2, "ops")
		if err != nil || e.Deliveries[0].State != alert.Pending || e.Deliveries[0].Attempts != 0 {
			t.Errorf("begun anew: %+v, %v", e, err)
		}
		_, err = s.Retry(ctx, "ann", 2, "crm")
		if !errors.Is(err, policystore.ErrInvalid) {
			t.Errorf("where there is no delivery: %v", err)
		}
		if _, err = s.Retry(ctx, "ann", 9999, ""); !errors.Is(err, policystore.ErrNotFound) {
			t.Errorf("of no event: %v", err)
		}
		rows, err := s.Audit(ctx, policystore.AuditQuery{N: 10, Action: "alert."})
		if err != nil || len(rows) != 1 || rows[0].Action != "alert.retry" || rows[0].Object != "2" || rows[0].Actor != "ann" {
			t.Errorf("audited: %+v, %v", rows, err)
		}
	})
}

// During an outage of a webhook one of its deliveries is claimed at a time, another each time, and the
// time that the others wait is none of theirs.
func TestOutages(t *testing.T) {
	stores(t, func(t *testing.T, s *sqlstore.Store) {
		ctx, now := t.Context(), time.UnixMilli(time.Now().UnixMilli())
		var found []alert.Event
		for i := range int64(5) {
			found = append(found, event("x", "acme", i+1, "ops", "crm"))
		}
		if _, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: found}}); err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Minute)
		for i := range alert.OutageAfter {
			o, err := s.Failing(ctx, "ops", at, fmt.Sprint("failure ", i))
			if err != nil || o.Failures != int64(i)+1 || o.Open.IsZero() != (i+1 < alert.OutageAfter) {
				t.Fatalf("failure %d: %+v, %v", i, o, err)
			}
		}
		all, err := s.Outages(ctx)
		if err != nil || len(all) != 1 || all[0].Webhook != "ops" || !all[0].Open.Equal(at) || all[0].Error != "failure 2" || !all[0].Next.After(at) {
			t.Fatalf("outages: %+v, %v", all, err)
		}
		if due, err := s.Claim(ctx, "ops", all[0].Next.Add(-time.Millisecond), at.Add(time.Hour), 10); err != nil || len(due) != 0 {
			t.Errorf("before its time: %+v, %v", due, err)
		}
		var tried []int64
		for range 6 {
			all, err := s.Outages(ctx)
			if err != nil {
				t.Fatal(err)
			}
			at = all[0].Next
			due, err := s.Claim(ctx, "ops", at, at.Add(time.Minute), 10)
			if err != nil || len(due) != 1 {
				t.Fatalf("at its time: %+v, %v", due, err)
			}
			if again, err := s.Claim(ctx, "ops", at, at.Add(time.Minute), 10); err != nil || len(again) != 0 {
				t.Errorf("by another at once: %+v, %v", again, err)
			}
			tried = append(tried, due[0].Number)
			o, err := s.Failing(ctx, "ops", at, "again")
			if err != nil {
				t.Fatal(err)
			}
			d := due[0]
			d.Next, d.Tried = o.Next, at
			if err := s.Tried(ctx, due[0].Next, d); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(tried, []int64{1, 2, 3, 4, 5, 1}) {
			t.Errorf("tried %d, want each in its turn", tried)
		}
		if due, err := s.Claim(ctx, "crm", at, at.Add(time.Minute), 10); err != nil || len(due) != 5 {
			t.Errorf("another webhook's: %+v, %v", due, err)
		}
		ended := at.Add(48 * time.Hour)
		if err := s.Working(ctx, "ops", ended); err != nil {
			t.Fatal(err)
		}
		if due, err := s.Event(ctx, 1); err != nil || due.Deliveries[0].Webhook != "crm" || due.Deliveries[0].Waited != 0 {
			t.Errorf("of a webhook that worked: %+v, %v, want no wait", due.Deliveries, err)
		}
		due, err := s.Claim(ctx, "ops", ended, ended.Add(time.Minute), 10)
		if want := ended.Sub(now.Add(time.Minute)); err != nil || len(due) != 5 || due[0].Waited != want {
			t.Errorf("after it: %+v, %v, want all, which waited %s", due, err, want)
		}
		for range alert.OutageAfter { // an outage that events were raised in: they wait since they are there
			if _, err := s.Failing(ctx, "crm", now.Add(-time.Hour), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Working(ctx, "crm", ended); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Event(ctx, 1); err != nil || e.Deliveries[0].Waited != ended.Sub(e.Deliveries[0].Since) {
			t.Errorf("raised in an outage: %+v, %v, want that it waited since", e.Deliveries, err)
		}
		if e, err := s.Retry(ctx, "ann", 1, "crm"); err != nil || e.Deliveries[0].Waited != 0 {
			t.Errorf("begun anew: %+v, %v, want no wait", e.Deliveries, err)
		}
		if _, err := s.Failing(ctx, "gone", at, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Orphan(ctx, []string{"ops"}, now.Add(-time.Hour), "gone"); err != nil {
			t.Fatal(err)
		}
		if o, err := s.Failing(ctx, "gone", at, "x"); err != nil || o.Failures != 1 {
			t.Errorf("of a webhook that was gone from the policy: %+v, %v", o, err)
		}
	})
}

// What a cap holds is kept with its event, told to servers as any change of a tenant,
// audited, and neither a document nor a change of plan undoes it.
func TestCapsHold(t *testing.T) {
	const text = `plans:
  p: {limits: [{name: x, rate: 1/s, meter: m}], price: {currency: USD, meters: {m: {unit: 1}}}, spending_cap: {amount: 5.00 USD, at: stop}}
  q: {limits: [{name: x, rate: 2/s, meter: m}]}
tenants: [{id: acme, plan: p, limits: [{name: x, rate: 3/s}], spending_cap: {amount: AMOUNT.00 USD, at: throttle to 7/second}}]
`
	stores(t, func(t *testing.T, s *sqlstore.Store) {
		ctx := t.Context()
		own, err := s.OwnCaps(ctx)
		if err != nil || own {
			t.Errorf("before any: %t, %v", own, err)
		}
		applied(t, s, replaced(text, "9"))
		if own, err = s.OwnCaps(ctx); err != nil || !own {
			t.Errorf("with one: %t, %v", own, err)
		}
		heads, err := s.Heads(ctx)
		if err != nil {
			t.Fatal(err)
		}
		holds := terms.Capped{At: terms.CapThrottle, Rate: "7/second", Period: "2026-11", Until: 1_800_000_000}
		raised, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: []alert.Event{event(terms.CapName, "acme", 1_000_000)}, Capped: &holds}})
		if err != nil || len(raised) != 1 {
			t.Fatal(raised, err)
		}
		changed, _, err := s.TenantChanges(ctx, heads.Tenants, 10)
		if err != nil || len(changed) != 1 || len(changed[0].Overrides) != 2 || changed[0].Overrides[1].Name != terms.CapName {
			t.Fatalf("told: %+v, %v", changed, err)
		}
		again, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Events: []alert.Event{event(terms.CapName, "acme", 1_000_000)}, Capped: &holds}})
		if now, err2 := s.Heads(ctx); err != nil || err2 != nil || len(again) != 0 || now.Tenants != heads.Tenants+1 {
			t.Errorf("again: %+v, %v, %v, %+v", again, err, err2, now)
		}
		list, err := s.Capped(ctx, "", 10)
		if err != nil || len(list) != 1 || list[0].ID != "acme" || list[0].Capped != holds {
			t.Errorf("capped: %+v, %v", list, err)
		}
		if a := applied(t, s, replaced(text, "9")); a.Changed {
			t.Errorf("the same document changes %q", a.Changes)
		}
		if a := applied(t, s, replaced(text, "8")); len(a.Changes) != 1 || a.Changes[0] != "tenant acme: spending cap 9.00 USD, then throttle to 7/second → 8.00 USD, then throttle to 7/second" {
			t.Errorf("another cap: %q", a.Changes)
		}
		if _, err := s.SetTenantPlan(ctx, "ann", "acme", "q"); err != nil {
			t.Fatal(err)
		}
		sub, err := s.Subscriber(ctx, "acme")
		if err != nil || sub.Capped != holds || sub.Cap.Amount != 800 {
			t.Errorf("after both: %+v, %v", sub, err)
		}
		stop := terms.Capped{At: terms.CapStop, Period: "2026-12", Until: 1_800_000_001}
		for _, c := range []*terms.Capped{&stop, {}} {
			if _, err := s.Raise(ctx, []alert.Found{{Tenant: "acme", Capped: c}}); err != nil {
				t.Fatal(err)
			}
			got, err := s.Tenants(ctx, []string{"acme"})
			if err != nil || got[0].Capped != (c == &stop) || got[0].Suspended || len(got[0].Overrides) != 1 {
				t.Errorf("with %+v: %+v, %v", c, got, err)
			}
		}
		rows, err := s.Audit(ctx, policystore.AuditQuery{N: 10, Actor: alert.Actor})
		if err != nil || len(rows) != 3 || rows[0].Action != "tenant.uncap" || rows[2].Action != "tenant.cap" || rows[2].Before == rows[2].After {
			t.Errorf("audited: %+v, %v", rows, err)
		}
		if _, err := s.Raise(ctx, []alert.Found{{Tenant: "nobody", Capped: &stop}}); !errors.Is(err, policystore.ErrNotFound) {
			t.Errorf("of nobody: %v", err)
		}

		m, err := s.Marks(ctx)
		if err != nil || m.Height != -1 {
			t.Errorf("marks before any: %+v, %v", m, err)
		}
		for _, want := range []alert.Marks{{Height: 5, Change: 4, Version: 3, Audit: 2, Sweeping: true, Sweep: "acme"}, {Height: 6}} {
			if err := s.SetMarks(ctx, want); err != nil {
				t.Fatal(err)
			}
			if m, err = s.Marks(ctx); err != nil || m != want {
				t.Errorf("marks: %+v, %v, want %+v", m, err, want)
			}
		}
	})
}

func replaced(text, amount string) string { return strings.ReplaceAll(text, "AMOUNT", amount) }
