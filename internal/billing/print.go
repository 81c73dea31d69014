package billing

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/sheet"
)

// Money writes the line's amount.
func (l Line) Money() string { return Money{l.Amount, l.Currency}.String() }

// What says what the line is for, in words.
func (l Line) What() string {
	var what string
	switch l.Kind {
	case KindFee:
		what = "plan " + l.Plan
	case KindUsage:
		what = fmt.Sprintf("%s: %d units", l.Meter, l.Units)
		if l.Included != 0 {
			what += fmt.Sprintf(", %d of them included", l.Included)
		}
	case KindOverage:
		what = fmt.Sprintf("%s: %d units above the limit", l.Meter, l.Units)
	case KindMinimum:
		what = "to the minimum of plan " + l.Plan
	case KindCredit:
		what = "paid by credit " + l.Credit
	case KindCarried:
		what = "below zero: it pays later statements as credit " + l.Credit
	default:
		what = l.Kind
	}
	if l.Period != "" {
		what += ", for " + l.Period
	}
	if l.Tenant != "" {
		what = l.Tenant + ": " + what
	}
	return what
}

// WriteCSV writes the lines: a header, and a row each. Amounts are decimals of the
// currency's major unit, so that a sheet adds them up.
func (s *Statement) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"tenant", "period", "service_period", "kind", "plan", "meter", "units", "included", "price", "credit", "amount", "currency"}) // Flush and Error tell
	for _, l := range s.Lines {
		service := l.Period
		if service == "" {
			service = s.Period.Name
		}
		amount, _, _ := strings.Cut(l.Money(), " ")
		_ = out.Write([]string{sheet.Text(cmp.Or(l.Tenant, s.Tenant)), s.Period.Name, service, l.Kind, sheet.Text(l.Plan), sheet.Text(l.Meter), strconv.FormatInt(l.Units, 10), strconv.FormatInt(l.Included, 10),
			sheet.Text(l.Price), sheet.Text(l.Credit), amount, l.Currency})
	}
	out.Flush()
	return out.Error()
}

// WriteHTML writes a page that prints on paper and needs nothing from anywhere else.
func (s *Statement) WriteHTML(w io.Writer, digest string) error {
	return page.Execute(w, struct {
		*Statement
		Digest string
		Charts []chart
	}{s, digest, s.charts()})
}

// chart is one meter's usage by day, as bars of an SVG.
type chart struct {
	Meter string
	Most  int64 // units of the highest bar
	Bars  []bar
	Width int
}

type bar struct {
	X, Y, Height int
	Date         string
	Units        int64
}

const (
	barWidth    = 18
	chartHeight = 120
)

// charts has one for each meter that counted something.
func (s *Statement) charts() (all []chart) {
	at := make(map[string]int)
	for _, d := range s.Days {
		i, ok := at[d.Meter]
		if !ok {
			i = len(all)
			at[d.Meter] = i
			all = append(all, chart{Meter: d.Meter})
		}
		c := &all[i]
		c.Most = max(c.Most, d.Admitted)
		c.Bars = append(c.Bars, bar{Date: d.Date, Units: d.Admitted})
	}
	for i := range all {
		c := &all[i]
		c.Width = barWidth * len(c.Bars)
		for j := range c.Bars {
			b := &c.Bars[j]
			if c.Most > 0 && b.Units > 0 {
				b.Height = int(float64(b.Units) / float64(c.Most) * chartHeight) // pixels, not money
			}
			b.X, b.Y = barWidth*j, chartHeight-b.Height
		}
	}
	return all
}

var page = template.Must(template.New("statement").Funcs(template.FuncMap{
	"money": func(amount int64, currency string) string { return Money{amount, currency}.String() },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Statement {{.Period.Name}} of {{.Tenant}}</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 60em; color: #222; }
table { border-collapse: collapse; width: 100%; margin: 1em 0; }
th, td { text-align: left; padding: .3em .6em; border-bottom: 1px solid #ddd; vertical-align: top; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.total td { font-weight: bold; border-top: 2px solid #222; }
.small { color: #666; font-size: 12px; overflow-wrap: anywhere; }
rect { fill: #3b6ea5; }
@media print { body { margin: 0; } tr, svg { break-inside: avoid; } }
</style>
</head>
<body>
<h1>Statement {{.Period.Name}}</h1>
<p>{{.Tenant}}, {{.Period.From}} to {{.Period.To}} ({{.Period.Zone}})</p>
<table>
<thead><tr><th>What</th><th>Price</th><th class="number">Amount</th></tr></thead>
<tbody>
{{- range .Lines}}
<tr><td>{{.What}}</td><td class="small">{{.Price}}</td><td class="number">{{.Money}}</td></tr>
{{- else}}
<tr><td colspan="3">Nothing is owed.</td></tr>
{{- end}}
{{- range .Totals}}
<tr class="total"><td colspan="2">Total</td><td class="number">{{money .Total .Currency}}</td></tr>
{{- end}}
</tbody>
</table>
{{- with .Quarantined}}
<p>{{.Rows}} rows with {{.Units}} units were in quarantine, and are not on this statement.</p>
{{- end}}
{{- range .Charts}}
<h2>{{.Meter}} by day</h2>
<svg role="img" aria-label="{{.Meter}} by day, at most {{.Most}} units" viewBox="0 0 {{.Width}} 120" height="120" width="{{.Width}}">
{{- range .Bars}}
<rect x="{{.X}}" y="{{.Y}}" width="14" height="{{.Height}}"><title>{{.Date}}: {{.Units}}</title></rect>
{{- end}}
</svg>
<p class="small">{{(index .Bars 0).Date}} and the days after it on which there was usage; the highest bar is {{.Most}} units.</p>
{{- end}}
<p class="small">Made at block {{.Block.Height}} of the ledger{{with .Block.Hash}}, {{.}}{{end}}. SHA-256 of the statement: {{.Digest}}</p>
</body>
</html>
`))
