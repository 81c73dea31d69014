package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// alerted is a document whose alerts are on line 12 and after.
func alerted(more string) string {
	return `webhooks:
  ops: {url: "https://hooks.example.com/quota", secret: {env: QUOTA_WEBHOOK_OPS}}
  local: {url: "http://127.0.0.1:9000/", secret: {file: /etc/quota/hook}}
limits: [{name: login, by: [ip], rate: 5/minute}]
plans:
  free: {limits: [{name: requests, rate: 100/hour, meter: requests}]}
  paid:
    limits:
      - {name: monthly, algorithm: fixed_window, rate: 1000/month, meter: calls}
      - {name: by-user, by: [user], algorithm: fixed_window, rate: 10/day, meter: users}
      - {name: unmetered, algorithm: fixed_window, rate: 10/day}
    price: {currency: USD, meters: {calls: {unit: 0.01}}}
` + more
}

func TestAlerts(t *testing.T) {
	d := mustParse(t, strings.Replace(alerted(`alerts:
  - {name: used, quota: monthly, at: [50%, 99.5%], webhooks: [local, ops]}
  - {name: spent, spending: cap, plans: paid}
  - {name: much, spending: 100.00 USD, at: 100%, tenants: [acme], webhooks: ops}
  - {name: denied, denials: requests}
tenants:
  - {id: acme, plan: paid, spending_cap: {amount: 50.00 USD, at: throttle to 10/second}}
  - {id: free-of-it, plan: paid, spending_cap: none}
`), "    price:", "    spending_cap: {amount: 20.00 USD, at: stop, webhooks: [ops]}\n    price:", 1))
	var got []string
	for _, a := range d.Alerts() {
		got = append(got, a.Name+": "+a.String())
	}
	for _, w := range d.Webhooks() {
		got = append(got, w.Name+": "+w.String())
	}
	got = append(got, d.Cap("paid").String(), d.Cap("free").String())
	for _, s := range d.TenantSpecs() {
		got = append(got, s.Cap.String())
		if again, err := terms.ParseCap(s.Cap.Text()); err != nil || again != s.Cap {
			t.Errorf("kept: %+v, %v", again, err)
		}
	}
	want := []string{
		"denied: denials requests over 15m against 24h, at least 100; at 300%", "much: spending 100.00 USD; at 100%; tenants acme; to ops",
		"spent: spending cap; at 50%, 80%, 100%; plans paid", "used: quota monthly; at 50%, 99.5%; to local, ops",
		"local: http://127.0.0.1:9000/, secret of file /etc/quota/hook", "ops: https://hooks.example.com/quota, secret of variable QUOTA_WEBHOOK_OPS",
		"20.00 USD, then stop", "", "50.00 USD, then throttle to 10/second", "no cap",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if a := d.Alerts()[1]; !a.Holds("acme", "free") || a.Holds("other", "paid") || d.Alerts()[2].Holds("acme", "free") {
		t.Errorf("who alerts are for: %+v", d.Alerts())
	}
}

func TestAlertFaults(t *testing.T) {
	alert := func(s string) string { return alerted("alerts:\n  - {name: a, " + s + "}\n") }
	hook := func(s string) string {
		return "webhooks:\n  ops: " + s + "\nplans: {p: {}}\n"
	}
	capped := func(s string) string {
		return "plans:\n  p:\n    limits: [{name: x, rate: 1/s, meter: m}]\n    price: {monthly: 1.00 USD}\n    spending_cap: " + s + "\n"
	}
	many := func(n int, format string) (s string) {
		for i := range n {
			s += fmt.Sprintf(format, i)
		}
		return s
	}
	for _, c := range []struct{ text, says string }{
		{alert("quota: requests"), "14: alert a is of limit requests: it has no window of the calendar"},
		{alert("quota: by-user"), "it counts by user"},
		{alert("quota: unmetered"), "it feeds no meter"},
		{alert("quota: login"), "whose buckets are not by tenant"},
		{alert("quota: nothing"), `no plan that it is for has a limit "nothing"`},
		{alert("quota: monthly, plans: [free]"), `no plan that it is for has a limit "monthly"`},
		{alert("quota: monthly, denials: requests"), "needs one of quota, spending and denials, and has quota and denials"},
		{alert("webhooks: [ops]"), "and has none"},
		{alert("quota: monthly, webhooks: [nobody]"), `there is no "nobody"; the webhooks are local, ops`},
		{alert("quota: monthly, webhooks: []"), "webhooks of alert a is empty"},
		{alert("quota: monthly, plans: [gold]"), `there is no "gold"; the plans are free, paid`},
		{alert("quota: monthly, tenants: [a b]"), "is no name"},
		{alert("quota: monthly, tenants: [x, x]"), "twice"},
		{alert("quota: monthly, at: [80%, 50%]"), "ascending order"},
		{alert("quota: monthly, at: [0%]"), "is no threshold"},
		{alert("quota: monthly, at: [1001%]"), "is no threshold"},
		{alert("quota: monthly, at: []"), "at of alert a is empty"},
		{alert("quota: monthly, at: [" + many(11, "%d%%, ") + "]"), "at most 10"},
		{alert("quota: monthly, over: 5m"), "over of alert a goes with denials"},
		{alert("quota: monthly, colour: red"), `unknown key "colour"`},
		{alert("denials: requests, over: 7m"), "a whole multiple of 5m"},
		{alert("denials: requests, over: 2h, against: 3h"), "twice as long"},
		{alert("denials: requests, at: 50%"), "a rise is a share above 100%"},
		{alert("spending: lots"), "write an amount such as 100.00 USD, or cap"},
		{alert("spending: 0.00 USD"), "write an amount"},
		{alerted("alerts:\n  - {spending: cap}\n"), "an alert has no name"},
		{alerted("alerts:\n  - {name: spending_cap, spending: cap}\n"), "cannot be called spending_cap"},
		{alerted("alerts:\n  - {name: x, spending: cap}\n  - {name: x, spending: cap}\n"), "15: alert x is there twice; the first is on line 14"},
		{alerted("alerts: [~]\n"), "not nothing"},
		{hook("{url: \"http://hooks.example.com\", secret: {env: QUOTA_WEBHOOK_X}}"), "2: url of webhook ops: it must begin with https://"},
		{hook("{url: \"https://me:pw@hooks.example.com\", secret: {env: QUOTA_WEBHOOK_X}}"), "holds a user or a password"},
		{hook("{url: \"ftp://hooks.example.com\", secret: {env: QUOTA_WEBHOOK_X}}"), "must begin with https://"},
		{hook("{url: hooks, secret: {env: QUOTA_WEBHOOK_X}}"), "write an address"},
		{hook("{url: \"https://h.example/#x\", secret: {env: QUOTA_WEBHOOK_X}}"), "never sent"},
		{hook("{url: \"https://h.example\"}"), "needs a url and a secret"},
		{hook("{url: \"https://h.example\", secret: whsec_abc}"), "a document holds no secrets"},
		{hook("{url: \"https://h.example\", secret: {env: HOME}}"), "begins with QUOTA_WEBHOOK_"},
		{hook("{url: \"https://h.example\", secret: {file: etc/x}}"), "a path from the root"},
		{hook("{url: \"https://h.example\", secret: {}}"), "needs one of env and file"},
		{"webhooks: {" + many(17, "h%d: {url: \"https://h.example\", secret: {file: /x}}, ") + "}\nplans: {p: {}}", "at most 16"},
		{capped("{amount: 5.00 USD}"), "5: spending_cap of plan p needs an amount and what happens"},
		{capped("{amount: 5.00 EUR, at: stop}"), "is in EUR, and the plan's price in USD"},
		{capped("{amount: 0.00 USD, at: stop}"), "a cap of nothing"},
		{capped("{amount: 5.00 USD, at: explode}"), "allowed are stop, throttle to RATE"},
		{capped("{amount: 5.00 USD, at: throttle to 5/month}"), "no fixed length"},
		{capped("{amount: 5.00 USD, at: throttle to fast}"), "invalid rate"},
		{capped("{amount: 5.00 USD, at: stop, webhooks: [x]}"), "the document has no webhooks"},
		{capped("none"), "must be such as"},
		// The limit that throttles would take the place of one of its name, with its meter: whoever has the cap.
		{strings.Replace(capped("{amount: 5.00 USD, at: stop}"), "name: x", "name: spending_cap", 1), "3: plan p: limit spending_cap: spending_cap is reserved"},
		{"limits:\n  - {name: spending_cap, rate: 1/s}\n" + capped("{amount: 5.00 USD, at: stop}"), "2: limit spending_cap: spending_cap is reserved"},
		{capped("{amount: 5.00 USD, at: stop}") + "tenants:\n  - {id: x, plan: p, limits: [{name: spending_cap, rate: 7/s}]}\n", "7: tenant x: limit spending_cap: spending_cap is reserved"},
		{"plans:\n  p:\n    limits: [{name: spending_cap, rate: 1/s, meter: m}]\n    price: {monthly: 1.00 USD}\ntenants:\n  - {id: x, plan: p, spending_cap: {amount: 1.00 USD, at: stop}}\n", "3: plan p: limit spending_cap: spending_cap is reserved"},
		{"plans:\n  p:\n    spending_cap: {amount: 5.00 USD, at: stop}\n", "the plan has no price"},
	} {
		if got := faultsOf(t, c.text); !strings.Contains(got, c.says) {
			t.Errorf("%s\ngot  %swant %s", c.text, got, c.says)
		}
	}
}

func TestAlertDiff(t *testing.T) {
	older := mustParse(t, alerted("alerts: [{name: used, quota: monthly}, {name: gone, spending: cap}]\n"))
	newer := mustParse(t, strings.NewReplacer("example.com", "example.org", "    price:", "    spending_cap: {amount: 20.00 USD, at: stop}\n    price:").Replace(
		alerted("alerts: [{name: used, quota: monthly, at: 90%}, {name: new, spending: cap}]\ntenants: [{id: acme, plan: paid, spending_cap: none}]\n")))
	want := `webhook ops: https://hooks.example.com/quota, secret of variable QUOTA_WEBHOOK_OPS → https://hooks.example.org/quota, secret of variable QUOTA_WEBHOOK_OPS
alert new added: spending cap; at 50%, 80%, 100%
alert used: quota monthly; at 50%, 80%, 100% → quota monthly; at 90%
alert gone removed
plan paid: spending cap none → 20.00 USD, then stop
tenant acme added, plan paid
tenant acme: spending cap none → no cap`
	if got := strings.Join(Diff(older, newer), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := Diff(newer, newer); len(again) != 0 {
		t.Errorf("against itself: %q", again)
	}
}

// What was reached holds: it denies, or adds the limit that throttles.
func TestCapped(t *testing.T) {
	var stopped, throttled, full limit.Tenant
	terms.Capped{At: terms.CapStop, Period: "2026-11"}.Hold(&stopped)
	terms.Capped{At: terms.CapThrottle, Rate: "10/second"}.Hold(&throttled)
	full.Overrides = make([]limit.Limit, limit.MaxPlanLimits)
	terms.Capped{At: terms.CapThrottle, Rate: "10/second"}.Hold(&full)
	terms.Capped{}.Hold(&limit.Tenant{})
	if !stopped.Capped || throttled.Capped || len(throttled.Overrides) != 1 || throttled.Overrides[0].Name != terms.CapName || throttled.Overrides[0].Rate.String() != "10/second" || !full.Capped {
		t.Errorf("stopped %+v, throttled %+v, full %t", stopped, throttled, full.Capped)
	}
}
