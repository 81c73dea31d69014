package policytest

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// A credit is given once, used by statements as they were made, and voided once.
func testCredits(t *testing.T, s policystore.Store) {
	apply(t, s, plans+"tenants: [{id: acme, plan: free}, {id: other, plan: free}]\n")
	ctx := t.Context()
	give := terms.Credit{ID: "c1", Tenant: "acme", Currency: "USD", Amount: 5000, Priority: 2, Expires: time.Now().Unix() + 3600, Rollover: 1000, Note: "welcome"}
	given := must[terms.Credit](t)(s.GiveCredit(ctx, "ann", give))
	if given.Left != 5000 || given.Actor != "ann" || time.Since(given.Given) > time.Hour {
		t.Errorf("given: %+v", given)
	}
	if again := must[terms.Credit](t)(s.GiveCredit(ctx, "bob", give)); again != given {
		t.Errorf("given again: %+v, want %+v", again, given)
	}
	more := give
	more.Amount++
	_, err := s.GiveCredit(ctx, "ann", more)
	is(t, "another of its id", err, policystore.ErrExists)
	for what, change := range map[string]func(c *terms.Credit){
		"id is": func(c *terms.Credit) { c.ID = "a b" }, "is not a currency": func(c *terms.Credit) { c.Currency = "XXX" }, "amount is 0": func(c *terms.Credit) { c.Amount = 0 },
		"which is past": func(c *terms.Credit) { c.Expires = 5 }, "more than the amount": func(c *terms.Credit) { c.Rollover = 5001 }, "priority is": func(c *terms.Credit) { c.Priority = 1 << 40 },
		"of credits that statements make": func(c *terms.Credit) { c.ID = "carried-mine" },
		"note must":                       func(c *terms.Credit) { c.Note = "a\x00" },
	} {
		c := give
		c.ID = "new"
		change(&c)
		_, err := s.GiveCredit(ctx, "ann", c)
		if is(t, what, err, policystore.ErrInvalid); err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	nobody := give
	nobody.ID, nobody.Tenant = "c9", "nobody"
	_, err = s.GiveCredit(ctx, "ann", nobody)
	is(t, "to nobody", err, policystore.ErrNotFound)
	must[terms.Credit](t)(s.GiveCredit(ctx, "ann", terms.Credit{ID: "c2", Tenant: "acme", Currency: "USD", Amount: 7, Rollover: -5}))

	first := terms.Closed{Tenant: "acme", Number: 1, Period: billing.Period{Name: "2026-10", From: 1000, To: 2000}, Document: "x", Digest: "d"}
	stale := billing.Burn{Credit: "c1", Currency: "USD", Before: 4000, Paid: 4000}
	_, err = s.CloseStatement(ctx, "ann", first, nil, stale)
	is(t, "a statement made of another credit", err, policystore.ErrConflict)
	_, err = s.CloseStatement(ctx, "ann", terms.Closed{Tenant: "other", Number: 1, Period: first.Period}, nil, billing.Burn{Credit: "c1", Before: 5000, After: 5000})
	is(t, "a statement of another tenant", err, policystore.ErrConflict)
	burn := billing.Burn{Credit: "c1", Currency: "USD", Before: 5000, Paid: 3500, Lapsed: 500, After: 1000}
	must[terms.Closed](t)(s.CloseStatement(ctx, "ann", first, nil, burn))
	must[terms.Closed](t)(s.CloseStatement(ctx, "ann", first, nil, burn)) // again: nothing more is used
	all := must[[]terms.Credit](t)(s.Credits(ctx, "acme"))
	if len(all) != 2 || all[0].Left != 1000 || all[1].Left != 7 || all[1].Rollover != -1 || all[0].Amount != 5000 {
		t.Errorf("after a statement: %+v", all)
	}
	void := must[terms.Credit](t)(s.VoidCredit(ctx, "cy", "c1", "given by mistake"))
	if again := must[terms.Credit](t)(s.VoidCredit(ctx, "bob", "c1", "twice")); again != void || void.Why != "given by mistake" || void.Voided.IsZero() {
		t.Errorf("voided: %+v, then %+v", void, again)
	}
	_, err = s.VoidCredit(ctx, "cy", "c7", "none")
	is(t, "one that is not there", err, policystore.ErrNotFound)
	if got := must[[]terms.Credit](t)(s.Credits(ctx, "other")); len(got) != 0 {
		t.Errorf("another's: %+v", got)
	}
	second := terms.Closed{Tenant: "acme", Number: 2, Period: billing.Period{Name: "2026-11", From: 2000, To: 3000}, Document: "y", Digest: "e"}
	made := []billing.Carried{{Credit: "carried-e", Currency: "EUR", Amount: 9}, {Credit: "carried-u", Currency: "USD", Amount: 8}}
	must[terms.Closed](t)(s.CloseStatement(ctx, "ann", second, made))
	must[terms.Closed](t)(s.CloseStatement(ctx, "ann", second, made)) // again: it is owed once
	all = must[[]terms.Credit](t)(s.Credits(ctx, "acme"))
	if len(all) != 4 || all[2].ID != "carried-e" || all[2].Left != 9 || all[3].Currency != "USD" || all[3].Amount != 8 || all[3].Carried != 2 || all[1].Carried != 0 ||
		all[3].Given.Unix() != 3000 || all[3].Expires != 0 || all[3].Rollover != -1 || all[3].Priority >= -terms.MaxPriority || all[3].Note != "carried from statement 2, of 2026-11" || all[3].Actor != "ann" {
		t.Errorf("carried: %+v", all)
	}
	var audit []string
	for _, r := range must[[]policystore.AuditRow](t)(s.Audit(ctx, policystore.AuditQuery{N: 10, Action: "credit"})) {
		audit = append(audit, r.Actor+" "+r.Action+" "+r.Object)
	}
	if got := strings.Join(audit, ", "); got != "ann credit.carry carried-u, ann credit.carry carried-e, cy credit.void c1, ann credit.give c2, ann credit.give c1" {
		t.Errorf("audit: %s", got)
	}
}
