package billing

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestBurn(t *testing.T) {
	p := Period{"p", 1000, 2000}
	all := int64(-1)
	for _, c := range []struct {
		name    string
		credits []Credit
		due     int64
		want    string // credit:paid/lapsed/after, in the order of use
		left    int64  // still due
	}{
		{"nothing due", []Credit{{ID: "a", Left: 5, Rollover: all}}, 0, "a:0/0/5", 0},
		{"a part", []Credit{{ID: "a", Left: 5, Rollover: all}}, 3, "a:3/0/2", 0},
		{"all of it", []Credit{{ID: "a", Left: 5, Rollover: all}}, 9, "a:5/0/0", 4},
		{"owed to the tenant", []Credit{{ID: "a", Left: 5, Rollover: all}}, -9, "a:0/0/5", -9},
		{"another currency", []Credit{{ID: "a", Left: 5, Rollover: all, Currency: "EUR"}}, 9, "a:0/0/5", 9},
		{"priority first", []Credit{{ID: "a", Left: 5, Rollover: all, Priority: 2, Expires: 9999}, {ID: "b", Left: 5, Rollover: all, Priority: 1, Given: 20}}, 7, "b:5/0/0 a:2/0/3", 0},
		{"then expiry", []Credit{{ID: "a", Left: 5, Rollover: all}, {ID: "b", Left: 5, Rollover: all, Expires: 9999}, {ID: "c", Left: 5, Rollover: all, Expires: 8888}}, 7, "c:5/0/0 b:2/0/3 a:0/0/5", 0},
		{"then age", []Credit{{ID: "a", Left: 5, Rollover: all, Given: 20}, {ID: "b", Left: 5, Rollover: all, Given: 10}}, 7, "b:5/0/0 a:2/0/3", 0},
		{"then id", []Credit{{ID: "b", Left: 5, Rollover: all}, {ID: "a", Left: 5, Rollover: all}}, 7, "a:5/0/0 b:2/0/3", 0},
		{"expires within: it pays, and the rest lapses", []Credit{{ID: "a", Left: 5, Rollover: all, Expires: 1500}}, 3, "a:3/2/0", 0},
		{"expires at the end", []Credit{{ID: "a", Left: 5, Rollover: all, Expires: 2000}}, 3, "a:3/2/0", 0},
		{"expires after the end", []Credit{{ID: "a", Left: 5, Rollover: all, Expires: 2001}}, 3, "a:3/0/2", 0},
		{"expired before", []Credit{{ID: "a", Left: 5, Rollover: all, Expires: 1000}}, 3, "a:0/5/0", 3},
		{"given within", []Credit{{ID: "a", Left: 5, Rollover: all, Given: 1999}}, 3, "a:3/0/2", 0},
		{"given after", []Credit{{ID: "a", Left: 5, Rollover: all, Given: 2000}}, 3, "", 3},
		{"void", []Credit{{ID: "a", Left: 5, Rollover: all, Voided: 1999}}, 3, "a:0/5/0", 3},
		{"void after the end", []Credit{{ID: "a", Left: 5, Rollover: all, Voided: 2000}}, 3, "a:3/0/2", 0},
		{"rollover cap", []Credit{{ID: "a", Left: 9, Rollover: 4}}, 3, "a:3/2/4", 0},
		{"below the cap", []Credit{{ID: "a", Left: 9, Rollover: 40}}, 3, "a:3/0/6", 0},
		{"no rollover", []Credit{{ID: "a", Left: 9}}, 3, "a:3/6/0", 0},
		{"used up", []Credit{{ID: "a"}}, 3, "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.credits {
				if c.credits[i].Currency == "" {
					c.credits[i].Currency = "USD"
				}
			}
			due := map[string]int64{"USD": c.due}
			burns, lines := burn(p, c.credits, due)
			got, paid := "", int64(0)
			for i, b := range burns {
				if i > 0 {
					got += " "
				}
				got += fmt.Sprintf("%s:%d/%d/%d", b.Credit, b.Paid, b.Lapsed, b.After)
				if b.Before != b.Paid+b.Lapsed+b.After {
					t.Errorf("%+v does not add up", b)
				}
				paid += b.Paid
			}
			for _, l := range lines {
				paid += l.Amount
			}
			if got != c.want || due["USD"] != c.left || paid != 0 {
				t.Errorf("got %s, %d left, lines off by %d; want %s, %d left", got, due["USD"], paid, c.want, c.left)
			}
		})
	}
}

// Nothing vanishes: whatever statements come to, in several currencies, below zero too, and whatever credits there are,
// their totals are what their lines come to, none is below zero, and what is owed to the tenant is a credit that
// statements after it use.
func TestNothingVanishes(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	currencies := []string{"EUR", "JPY", "USD"}
	for range 200 {
		var credits []Credit
		given, charged, due := make(map[string]int64), make(map[string]int64), make(map[string]int64)
		for n := int64(1); n <= 12; n++ {
			p := Period{Name: fmt.Sprintf("month-%d", n), From: n * 1000, To: n*1000 + 1000}
			if r.IntN(4) == 0 {
				c := Credit{ID: fmt.Sprint("gift-", n), Currency: currencies[r.IntN(3)], Left: r.Int64N(3000), Priority: r.Int64N(5), Given: p.From, Rollover: -1}
				credits = append(credits, c)
				given[c.Currency] += c.Left
			}
			s := &Statement{Tenant: "acme", Period: Span{Name: p.Name}}
			for range r.IntN(5) {
				l := Line{Kind: KindUsage, Currency: currencies[r.IntN(3)], Amount: r.Int64N(1000)}
				if r.IntN(2) == 0 {
					l.Period, l.Amount = "earlier", l.Amount-r.Int64N(2000)
				}
				due[l.Currency] += l.Amount
				s.Lines = append(s.Lines, l)
			}
			if err := s.total(&Input{Period: p, Credits: credits}); err != nil {
				t.Fatal(err)
			}
			lines := make(map[string]int64)
			for _, l := range s.Lines {
				lines[l.Currency] += l.Amount
			}
			for _, total := range s.Totals {
				if total.Total < 0 || total.Total != lines[total.Currency] || total.Total != total.Charges+total.Adjustments-total.Credits+total.Carried {
					t.Fatalf("seed %d: %+v, lines come to %d", seed, total, lines[total.Currency])
				}
				charged[total.Currency] += total.Total
			}
			for _, b := range s.Credits {
				for i := range credits {
					if credits[i].ID == b.Credit {
						credits[i].Left = b.After
					}
				}
			}
			for _, c := range s.Carried() {
				credits = append(credits, Credit{ID: c.Credit, Currency: c.Currency, Left: c.Amount, Priority: -1, Given: p.To, Rollover: -1})
			}
		}
		left := make(map[string]int64)
		for _, c := range credits {
			left[c.Currency] += c.Left
		}
		for _, c := range currencies {
			// What was charged or paid from gifts, less what is still owed, is what all lines came to.
			if got := charged[c] + given[c] - left[c]; got != due[c] {
				t.Errorf("seed %d: %s: charged %d, given %d, left %d, which make %d; lines came to %d", seed, c, charged[c], given[c], left[c], got, due[c])
			}
		}
	}
}
