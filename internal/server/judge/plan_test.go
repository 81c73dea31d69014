package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// An agent cannot choose the plan that its rows are billed under: only those that the tenant has, or once had, for one
// that is cut off goes on under the plan of before; of a tenant that nobody made, and for a day after somebody did, the
// default one.
func TestAnAgentChoosesNoPlan(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	now := at
	_, _, store := servertest.OnSQLite(t, func() time.Time { return now })
	const limits = "{limits: [{name: a, rate: 1/s, meter: a}]}"
	doc, err := policy.Parse("quota.yaml", []byte("default_plan: trial\nplans: {trial: "+limits+", free: "+limits+", paid: "+limits+", gold: "+limits+"}\ntenants: [{id: acme, plan: paid}]"))
	if err == nil {
		_, err = store.Apply(t.Context(), "ann", doc, 0, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	j := New(store)
	judges := func(what, tenant, plan string, slot time.Time, want string) {
		t.Helper()
		err := verdict(t, j, ledger.Row{Slot: slot.Unix(), Tenant: tenant, Limit: "a", Meter: "a", Version: 1, Plan: plan, Admitted: 1})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	judges("its plan", "acme", "paid", at, "")
	judges("no plan", "acme", "", at, "")
	judges("another", "acme", "free", at, `tenant "acme" never had plan "free"`)
	judges("none that there is", "acme", "nonsense", at, "never had")
	judges("the default one, just made", "acme", "trial", at.Add(time.Hour), "")
	judges("the default one, made long ago", "acme", "trial", at.Add(25*time.Hour), "never had")
	judges("nobody's", "nobody", "trial", at.Add(25*time.Hour), "")
	judges("nobody's, another", "nobody", "paid", at, "never had")
	now = at.Add(time.Hour)
	if _, err := store.SetTenantPlan(t.Context(), "ann", "acme", "free"); err != nil {
		t.Fatal(err)
	}
	judges("since", "acme", "free", now, "")
	judges("that of before", "acme", "paid", now.Add(10*time.Hour), "")
	judges("one that it never had", "acme", "gold", now, "never had")
}
