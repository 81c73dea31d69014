package billing

import (
	"fmt"
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
