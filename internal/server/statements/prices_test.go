package statements

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// Of a version whose number came again after a restore, the price is the one that it has now, also where an older
// number came again than the newest, and where the newest has the number that the newest had.
func TestPricesOfARestoredPolicy(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	first := servertest.PricedPolicy
	dear := strings.Replace(servertest.PricedPolicy, "31.00 USD", "62.00 USD", 1)
	dearer := strings.Replace(servertest.PricedPolicy, "31.00 USD", "93.00 USD", 1)
	s := &servertest.Restored{Store: servertest.StoreOf(t, at, first, dear)}
	p := newPrices(s)
	monthly := func() (all []string) {
		t.Helper()
		versions, err := p.during(t.Context(), []billing.Period{{From: at.Unix(), To: at.AddDate(0, 1, 0).Unix()}}, []int64{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			all = append(all, billing.Money{Amount: v.Prices["paid"].Monthly, Currency: "USD"}.String())
		}
		return all
	}
	wants := func(what string, want ...string) {
		t.Helper()
		if got := monthly(); strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	wants("at first", "31.00 USD", "62.00 USD")
	s.Store = servertest.StoreOf(t, at.Add(time.Hour), first, dearer)
	wants("the newest came again", "31.00 USD", "93.00 USD")
	s.Store = servertest.StoreOf(t, at.Add(2*time.Hour), first, strings.Replace(servertest.PricedPolicy, "31.00 USD", "124.00 USD", 1), first)
	wants("one below the newest came again", "31.00 USD", "124.00 USD", "31.00 USD")
}
