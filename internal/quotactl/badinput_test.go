package quotactl

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/server/boot"
)

// Bad input about plans, prices, statements, credits and reports is refused with the reason, as the caller's fault, by
// REST and by command, and nothing is written of it.
func TestBadInput(t *testing.T) {
	const key = "the-first-key-of-this-test"
	e := start(t, func(c *boot.Config) { c.BootstrapAdminKey = key })
	e.args = append(e.args, "--key", key)
	e.ok("tenant", "set-plan", "acme", "free", "--at", "2090-01-01")
	e.ok("credit", "give", "acme", "5.00 USD", "--id", "given")
	before := e.ok("audit", "--limit", "1000", "-o", "csv")
	long := strings.Repeat("x", 100_000)
	price := func(text string) string {
		return strconv.Quote("plans: {free: {limits: []}, paid: {limits: [{name: requests, rate: 1/s, meter: m}], price: {" + text + "}}}")
	}
	many := func(n int, one string) string { return strings.Repeat(one+",", n-1) + one }
	for _, bad := range []struct{ what, method, path, body, says string }{
		{"two plans at one time", "POST", "/v1/tenants/acme:setPlan", `{"plan": "paid", "at_ms": "3786912000000"}`, "changes to plan free"},
		{"a plan in the past", "POST", "/v1/tenants/acme:setPlan", `{"plan": "paid", "at_ms": "1"}`, "is past"},
		{"a time before all", "POST", "/v1/tenants/acme:setPlan", `{"plan": "paid", "at_ms": "-1"}`, "at_ms"},
		{"a time after all", "POST", "/v1/tenants/acme:setPlan", `{"plan": "paid", "at_ms": "9223372036854775807"}`, "at_ms"},
		{"a time that is none", "POST", "/v1/tenants/acme:setPlan", `{"plan": "paid", "at_ms": "99999999999999999999"}`, "atMs"},
		{"two times", "POST", "/v1/tenants/acme:setPlan", `{"plan": "paid", "at_ms": "3786912000001", "at_period_end": true}`, "two times"},
		{"no such plan at a time", "POST", "/v1/tenants/acme:setPlan", `{"plan": "gold", "at_period_end": true}`, "no plan"},
		{"no change there", "POST", "/v1/tenants/acme:cancelPlanChange", `{"at_ms": "3786912000001"}`, "no plan change"},
		{"no time to cancel", "POST", "/v1/tenants/acme:cancelPlanChange", `{}`, "at_ms"},
		{"plans of nobody", "GET", "/v1/plan-changes?tenant=nobody", "", "nobody"},
		{"plans of no name", "GET", "/v1/plan-changes?tenant=", "", "tenant"},
		{"an enormous tenant", "POST", "/v1/tenants", `{"id": "` + long + `", "plan": "paid"}`, "id"},
		{"an enormous plan", "POST", "/v1/tenants", `{"id": "x", "plan": "` + long + `"}`, "plan"},
		{"a currency that there is not", "POST", "/v1/policy", `{"document": ` + price("monthly: 1.00 XYZ") + `}`, "not a currency"},
		{"a currency in small letters", "POST", "/v1/policy", `{"document": ` + price("monthly: 1.00 usd") + `}`, "not a currency"},
		{"a price that overflows", "POST", "/v1/policy", `{"document": ` + price("currency: USD, meters: {m: {unit: 99999999999999}}") + `}`, "too much"},
		{"a fee that overflows", "POST", "/v1/policy", `{"document": ` + price("monthly: 90071992547409.92 USD") + `}`, "too much"},
		{"a price of many digits", "POST", "/v1/policy", `{"document": ` + price("currency: USD, meters: {m: {unit: 0."+strings.Repeat("1", 5000)+"}}") + `}`, "too many digits"},
		{"a price below 0", "POST", "/v1/policy", `{"document": ` + price("currency: USD, meters: {m: {unit: -1}}") + `}`, "decimal"},
		{"a price as a power", "POST", "/v1/policy", `{"document": ` + price("currency: USD, meters: {m: {unit: 1e3}}") + `}`, "decimal"},
		{"tiers that overlap", "POST", "/v1/policy", `{"document": ` + price("currency: USD, meters: {m: {tiers: [{up_to: 10, unit: 1}, {up_to: 10, unit: 2}, {unit: 3}]}}") + `}`, "tier"},
		{"enormously many tiers", "POST", "/v1/policy", `{"document": ` + price("currency: USD, meters: {m: {tiers: ["+many(5000, "{up_to: 10, unit: 1}")+"]}}") + `}`, "most"},
		{"no such zone", "POST", "/v1/policy", `{"document": "plans: {free: {limits: []}, paid: {limits: []}}\ntenants: [{id: acme, plan: paid, billing: {zone: Mars/Phobos}}]"}`, "zone"},
		{"a zone that is a path", "POST", "/v1/policy", `{"document": "plans: {free: {limits: []}, paid: {limits: []}}\ntenants: [{id: acme, plan: paid, billing: {zone: ../../etc/passwd}}]"}`, "zone"},
		{"a period that has not ended", "POST", "/v1/statements:close", `{"tenant": "acme"}`, "has not ended"},
		{"forced, too", "POST", "/v1/statements:close", `{"tenant": "acme", "force_reason": "now"}`, "has not ended"},
		{"an enormous reason", "POST", "/v1/statements:close", `{"tenant": "acme", "force_reason": "` + long + `"}`, "force_reason"},
		{"no such month", "GET", "/v1/statements:preview?tenant=acme&period=2026-13", "", "period"},
		{"an absurd month", "GET", "/v1/statements:preview?tenant=acme&period=99999-01", "", "period"},
		{"the year 1", "GET", "/v1/statements:preview?tenant=acme&period=0001-01", "", "period"},
		{"a month to come", "GET", "/v1/statements:preview?tenant=acme&period=9998-12", "", "has not begun"},
		{"an enormous month", "GET", "/v1/statements:preview?tenant=acme&period=" + long[:5000], "", "period"},
		{"a grace below 0", "POST", "/v1/statements:closeDue", `{"grace_ms": "-1"}`, "grace_ms"},
		{"many periods", "POST", "/v1/statements:simulate", `{"plan": "free", "periods": 100000}`, "periods"},
		{"a credit of no money", "POST", "/v1/credits", `{"id": "c", "tenant": "acme", "amount": "0.00 USD"}`, "amount"},
		{"a credit below 0", "POST", "/v1/credits", `{"id": "c", "tenant": "acme", "amount": "-5.00 USD"}`, "decimal"},
		{"a credit that overflows", "POST", "/v1/credits", `{"id": "c", "tenant": "acme", "amount": "99999999999999999.00 USD"}`, "too much"},
		{"a credit finer than a cent", "POST", "/v1/credits", `{"id": "c", "tenant": "acme", "amount": "5.001 USD"}`, "finer"},
		{"a credit that has expired", "POST", "/v1/credits", `{"id": "c", "tenant": "acme", "amount": "5.00 USD", "expires_ms": "1000"}`, "past"},
		{"a rollover in other money", "POST", "/v1/credits", `{"id": "c", "tenant": "acme", "amount": "5.00 USD", "rollover": "1.00 EUR"}`, "rollover"},
		{"a credit under another's id", "POST", "/v1/credits", `{"id": "given", "tenant": "acme", "amount": "6.00 USD"}`, "given"},
		{"a credit to nobody", "POST", "/v1/credits", `{"id": "c", "tenant": "nobody", "amount": "5.00 USD"}`, "nobody"},
		{"a report by what is not", "GET", "/v1/usage/breakdown?by=color", "", "color"},
		{"a report by many", "GET", "/v1/usage/breakdown?by=" + many(1000, "tenant"), "", "by"},
		{"a report in no zone", "GET", "/v1/usage/breakdown?by=tenant&every=EVERY_DAY&zone=Nowhere", "", "zone"},
		{"a report before all", "GET", "/v1/usage/breakdown?by=tenant&from_ms=-99999999999999999", "", "from_ms"},
		{"a report of a time that is none", "GET", "/v1/usage/breakdown?by=tenant&to_ms=1e400", "", "to_ms"},
		{"a page of nothing", "GET", "/v1/usage/breakdown?by=tenant&page_token=zzz", "", "page"},
		{"enormously many rows", "GET", "/v1/usage/breakdown?by=tenant&top=2147483647", "", "top"},
		{"a file of no kind", "GET", "/v1/usage/export?format=xlsx", "", "csv, jsonl or parquet"},
		{"a cap of no money", "POST", "/v1/policy", `{"document": "plans: {free: {limits: []}, paid: {limits: [], spending_cap: {amount: 0.00 USD, at: stop}}}"}`, "amount"},
	} {
		code, answer := e.call(key, bad.method, bad.path, bad.body)
		if code < 400 || code >= 500 || !strings.Contains(answer, bad.says) {
			t.Errorf("%s: %d %.300s, want a refusal that says %q", bad.what, code, answer, bad.says)
		}
		if len(answer) > 16<<10 {
			t.Errorf("%s: the answer has %d bytes", bad.what, len(answer))
		}
	}
	for _, bad := range []struct {
		words []string
		says  string
	}{
		{[]string{"tenant", "set-plan", "acme", "paid", "--at", "yesterday"}, "is not a time"},
		{[]string{"tenant", "set-plan", "acme", "paid", "--at", "-24h"}, "is past"},
		{[]string{"tenant", "set-plan", "acme", "paid", "--at", "2090-02-30"}, "is not a time"},
		{[]string{"tenant", "set-plan", "acme", "paid", "--at", "9999-01-01"}, "hundred years"},
		{[]string{"tenant", "set-plan", "acme", "paid", "--at", "2090-01-02", "--at-period-end"}, "two times"},
		{[]string{"tenant", "cancel", "acme", "--now", "--at", "2090-01-02"}, "two times"},
		{[]string{"tenant", "cancel", "acme", "--to", "gold"}, "no plan"},
		{[]string{"tenant", "cancel", "nobody"}, "nobody"},
		{[]string{"tenant", "keep-plan", "acme"}, "which change"},
		{[]string{"tenant", "keep-plan", "acme", "--at", "2091-01-01"}, "no plan change"},
		{[]string{"tenant", "plans", long[:200]}, "tenant"},
		{[]string{"credit", "give", "acme", "5 dollars", "--id", "c"}, "currency"},
		{[]string{"statement", "close", "--tenant", "acme", "--period", "next"}, "period"},
		{[]string{"usage", "report", "--by", "tenant", "--from", "9999-99-99"}, "is not a time"},
		{[]string{"usage", "report", "--by", "tenant", "--zone", "UTC+5:30"}, "zone"},
	} {
		out, errs, code := e.run(bad.words...)
		if code == exitOK || !strings.Contains(errs, bad.says) || out != "" {
			t.Errorf("quotactl %.100q: exit %d, %.300s%.100s, want a refusal that says %q", bad.words, code, errs, out, bad.says)
		}
	}
	if after := e.ok("audit", "--limit", "1000", "-o", "csv"); after != before {
		t.Errorf("something was changed:\n%s", strings.Replace(after, before, "", 1))
	}
	e.want("plans", e.ok("tenant", "plans", "acme"), "FROM                  PLAN  STATE\nTIME  paid  -\nTIME  free  scheduled by "+firstKey(e)+"\n")
	e.ok("tenant", "keep-plan", "acme", "--at", "2090-01-01")
	if out := e.ok("tenant", "cancel", "acme"); !strings.Contains(out, "will have the plan free from ") {
		t.Errorf("cancelled: %s", out)
	}
	if code, answer := e.call(key, "GET", "/v1/plan-changes?tenant=acme", ""); code != http.StatusOK || strings.Count(answer, "\"scheduled\":true") != 1 {
		t.Errorf("plans by REST: %d %s", code, answer)
	}
	// Now, and by whoever looks: within a second of its time.
	at := time.Now().Add(1200 * time.Millisecond).UTC()
	e.ok("tenant", "set-plan", "acme", "free", "--at", at.Format(time.RFC3339Nano))
	for begun := time.Now(); !strings.Contains(e.ok("tenant", "get", "acme"), `"plan": "free"`); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the plan did not change at its time")
		}
	}
	var got []string
	for line := range strings.Lines(e.ok("tenant", "plans", "acme", "-o", "csv")) {
		got = append(got, strings.Split(line, ",")[1])
	}
	if want := []string{"plan", "paid", "free", "free"}; !slices.Equal(got, want) {
		t.Errorf("plans %q, want %q", got, want)
	}
}

// firstKey is the actor of the first key.
func firstKey(e *env) string {
	e.t.Helper()
	for line := range strings.Lines(e.ok("audit", "--action", "tenant.schedule", "-o", "csv")) {
		if cells := strings.Split(line, ","); cells[0] != "number" {
			return fmt.Sprint(cells[2])
		}
	}
	return ""
}
