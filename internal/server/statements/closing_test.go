package statements

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Servers that close a period at once keep one statement of it, which all of them answer, and a credit pays once.
func TestManyCloseAtOnce(t *testing.T) { servertest.OnEngines(t, testManyCloseAtOnce) }

func testManyCloseAtOnce(t *testing.T, on servertest.Engine) {
	b := newBilledOn(t, on)
	if err := b.ApplyText(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: paid}", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.s.GiveCredit(servertest.AsAnn(t.Context()), &quotav1.GiveCreditRequest{Id: "c", Tenant: "acme", Amount: "50.00 USD"}); err != nil {
		t.Fatal(err)
	}
	b.At = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	b.Settle("gw", time.Date(2026, 10, 9, 0, 0, 0, 0, time.UTC), 100, b.At)
	var all sync.WaitGroup
	var mu sync.Mutex
	digests := make(map[string]int)
	for range 2 {
		s := *b.s // another server
		s.prices = newPrices(s.policy)
		for range 4 {
			all.Go(func() {
				for range 8 { // as a caller who is told to try again
					got, err := s.CloseStatement(servertest.AsAnn(t.Context()), &quotav1.CloseStatementRequest{Tenant: "acme", Period: "2026-10"})
					if errors.Is(err, fault.ErrConflict) {
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					digests[got.Statement.Digest]++
					return
				}
			})
		}
	}
	all.Wait()
	list, err := b.Policy.Statements(t.Context(), "acme", 0, 10)
	if err != nil || len(list) != 1 || len(digests) != 1 || digests[list[0].Digest] != 8 {
		t.Errorf("statements %+v, %v; answered %v", list, err, digests)
	}
	credits, err := b.Policy.Credits(t.Context(), "acme")
	if err != nil || len(credits) != 1 || credits[0].Left != 5000-3100-500 {
		t.Errorf("credits %+v, %v", credits, err)
	}
}

// Whatever comes late, and however plans, prices and credits change meanwhile, all statements together charge of every
// period what it comes to in the end, and each of them adds up. Zones have half hours, and clocks that change at their
// periods' edges.
func TestStatementsAddUp(t *testing.T) {
	runs := 60
	if testing.Short() {
		runs = 10
	}
	zones := []string{"UTC", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "Europe/Berlin", "America/Asuncion", "Pacific/Apia"}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			addsUp(t, rand.New(rand.NewPCG(seed, 0)), zones[seed%uint64(len(zones))])
		})
	}
}

func addsUp(t *testing.T, random *rand.Rand, zone string) {
	b := newBilled(t)
	which := "calendar"
	if random.IntN(2) == 0 {
		which = "anniversary"
	}
	price := 5
	text := func() string {
		return fmt.Sprintf(strings.Replace(servertest.PricedPolicy, "plan: free}", "plan: PLAN, billing: {zone: %s, period: %s}}", 1), zone, which)
	}
	apply := func() {
		s, err := b.Policy.Subscriber(t.Context(), "acme")
		plan := "free"
		if err == nil {
			plan = s.Subscriptions[len(s.Subscriptions)-1].Plan
		}
		said := strings.NewReplacer("PLAN", plan, "unit: 0.05", fmt.Sprintf("unit: 0.%02d", price)).Replace(text())
		if err := b.ApplyText(said); err != nil {
			t.Fatal(err)
		}
	}
	begin := b.At
	apply()
	credits := 0
	last := begin
	for step := 0; b.At.Before(begin.AddDate(0, 8, 0)); step++ {
		b.At = b.At.Add(time.Duration(random.IntN(9*24*3600)) * time.Second)
		switch random.IntN(8) {
		case 0: // another plan, now or later, at any second
			plan := []string{"free", "paid"}[random.IntN(2)]
			var err error
			if random.IntN(2) == 0 {
				_, err = b.Policy.SetTenantPlan(t.Context(), "ann", "acme", plan)
			} else {
				_, err = b.Policy.SchedulePlan(t.Context(), "ann", "acme", plan, b.At.Add(time.Duration(1+random.IntN(20*24*3600))*time.Second))
			}
			if err != nil {
				t.Fatal(err)
			}
		case 1: // another price
			price = 1 + random.IntN(20)
			apply()
		case 2:
			credits++
			if _, err := b.s.GiveCredit(servertest.AsAnn(t.Context()), &quotav1.GiveCreditRequest{Id: fmt.Sprint("c", credits), Tenant: "acme", Amount: fmt.Sprintf("%d.00 USD", 1+random.IntN(40))}); err != nil {
				t.Fatal(err)
			}
		case 6: // usage of a slot that is still to come, which is kept aside
			b.Settle(fmt.Sprint("early", step), b.At.Add(time.Duration(1+random.IntN(40*24*12))*5*time.Minute).Truncate(5*time.Minute), int64(1+random.IntN(900)), b.At)
		case 7:
			b.resolve(random.IntN(4) == 0)
		case 3:
			b.Settle("gw", last, 0, b.At)
			if _, err := b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{}); err != nil {
				t.Fatal(err)
			}
		default: // usage of any slot until now: of closed periods, too
			back := time.Duration(random.Int64N(int64(b.At.Sub(begin)) + 1))
			if random.IntN(3) > 0 {
				back = min(back, 48*time.Hour)
			}
			slot := b.At.Add(-back).Truncate(5 * time.Minute)
			if slot.Before(begin) {
				slot = begin
			}
			b.Settle(fmt.Sprint("late", step), slot, int64(random.IntN(1500)), b.At)
			last = slot
		}
	}
	b.At = b.At.AddDate(0, 3, 0)
	for _, agent := range []string{"gw"} {
		b.Settle(agent, b.At.Add(-5*time.Minute), 0, b.At)
	}
	b.resolve(false)
	done, err := b.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{ForceReason: "agents that are done"})
	if err != nil || len(done.Refused) > 0 {
		t.Fatalf("%+v, %v", done.GetRefused(), err)
	}
	closed, err := b.Policy.Statements(t.Context(), "acme", 0, 100)
	if err != nil || len(closed) < 6 {
		t.Fatalf("%d statements, %v", len(closed), err)
	}
	charged := make(map[string]int64) // by service period
	for i := range closed {
		c, err := b.Policy.Statement(t.Context(), "acme", closed[i].Period.Name)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && closed[i].Period.To != closed[i-1].Period.From {
			t.Errorf("periods %+v and %+v do not follow one another", closed[i].Period, closed[i-1].Period)
		}
		s := new(billing.Statement)
		if err := json.Unmarshal([]byte(c.Document), s); err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, l := range s.Lines {
			total += l.Amount
			switch {
			case l.Kind == billing.KindCredit, l.Kind == billing.KindCarried:
			case l.Period == "":
				charged[s.Period.Name] += l.Amount
			default:
				charged[l.Period] += l.Amount
			}
		}
		says := int64(0)
		for _, of := range s.Totals {
			says += of.Total
		}
		if total != says {
			t.Errorf("%s: lines come to %d, the total to %d", s.Period.Name, total, says)
		}
	}
	subscriber, err := b.Policy.Subscriber(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	for i := range closed {
		p := closed[i].Period
		cycle, err := subscriber.Cycle()
		if err != nil {
			t.Fatal(err)
		}
		in := &billing.Input{Tenant: "acme", Cycle: cycle, Period: p, Subscriptions: subscriber.Subscriptions}
		if _, err := b.s.usage(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		s, err := billing.Rate(in)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for _, l := range s.Lines {
			want += l.Amount
		}
		if charged[p.Name] != want {
			t.Errorf("%s, %s: %s was charged %d in all, and comes to %d", zone, which, p.Name, charged[p.Name], want)
		}
	}
	left, err := b.Policy.Credits(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range left {
		if c.Left < 0 || c.Left > c.Amount {
			t.Errorf("credit %s has %d of %d left", c.ID, c.Left, c.Amount)
		}
	}
}
