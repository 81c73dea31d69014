package billing

import (
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	s := &Statement{
		Tenant: `<acme>,"x"`, Period: Span{Name: "2026-11", Zone: "UTC", From: "a", To: "b"}, Block: Block{7, "beef"},
		Lines: []Line{
			{Kind: KindFee, Plan: "paid", Price: "49.00 USD", Currency: "USD", Amount: 4900},
			{Kind: KindUsage, Plan: "paid", Meter: "requests", Units: 700, Included: 500, Price: "p", Currency: "USD", Amount: 1},
			{Kind: KindOverage, Plan: "paid", Meter: "requests", Units: 3, Currency: "USD", Amount: -2, Period: "2026-10"},
			{Kind: KindMinimum, Plan: "paid", Currency: "JPY", Amount: 500},
			{Kind: KindCredit, Credit: "gift", Currency: "USD", Amount: -4000},
		},
		Totals: []Total{{Currency: "JPY", Total: 500}, {Currency: "USD", Total: 899}},
		Days:   []Day{{"2026-11-01", "requests", 100, 0}, {"2026-11-02", "requests", 50, 0}, {"2026-11-03", "requests", -5, 0}},
	}
	var out strings.Builder
	if err := s.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	want := `tenant,period,service_period,kind,plan,meter,units,included,price,credit,amount,currency
"<acme>,""x""",2026-11,2026-11,fee,paid,,0,0,49.00 USD,,49.00,USD
"<acme>,""x""",2026-11,2026-11,usage,paid,requests,700,500,p,,0.01,USD
"<acme>,""x""",2026-11,2026-10,overage,paid,requests,3,0,,,-0.02,USD
"<acme>,""x""",2026-11,2026-11,minimum,paid,,0,0,,,500,JPY
"<acme>,""x""",2026-11,2026-11,credit,,,0,0,,gift,-40.00,USD
`
	if out.String() != want {
		t.Errorf("CSV:\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := s.WriteHTML(&out, "d1ce"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"Statement 2026-11 of &lt;acme&gt;", "<td>requests: 700 units, 500 of them included</td>", "requests: 3 units above the limit, for 2026-10",
		"to the minimum of plan paid", "paid by credit gift", `<td class="number">8.99 USD</td>`, `<td class="number">500 JPY</td>`,
		`y="0" width="14" height="120"><title>2026-11-01: 100</title>`, `y="60" width="14" height="60"`, `y="120" width="14" height="0"><title>2026-11-03: -5</title>`,
		"block 7 of the ledger, beef", "d1ce",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the page lacks %s:\n%s", part, out.String())
		}
	}
	if strings.Contains(out.String(), "<acme>") || strings.Contains(out.String(), "http") {
		t.Errorf("the page is not safe, or needs something from elsewhere:\n%s", out.String())
	}
}
