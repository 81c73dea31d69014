package load

import (
	"bytes"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"
)

// line is a line of a chart.
type line struct {
	Name, Colour, Points string
}

// mark is a number on an axis.
type mark struct {
	At   float64
	Text string
}

// chart is lines over the seconds of a run.
type chart struct {
	Title   string
	Lines   []line
	Warm    float64 // where what is measured begins
	Values  []mark  // by height
	Seconds []mark  // by width
}

const chartWidth, chartHeight = 900.0, 160.0

var colours = []string{"#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a"}

// value is a line's value at a sample; ok is false if it was not seen.
type value func(s *Sample, name string) (v float64, ok bool)

func newChart(title string, samples []Sample, warm float64, names []string, of value) chart {
	most, last := 0.0, 1.0
	for i := range samples {
		last = max(last, samples[i].Second)
		for _, name := range names {
			v, _ := of(&samples[i], name)
			most = max(most, v)
		}
	}
	step := round(most / 4)
	top := max(math.Ceil(most/step), 1) * step
	c := chart{Title: title, Warm: tenths(min(warm/last, 1) * chartWidth)}
	for v := 0.0; v <= top*1.001; v += step {
		c.Values = append(c.Values, mark{tenths(chartHeight * (1 - v/top)), fmt.Sprintf("%.10g", v)})
	}
	step = round(last / 8)
	for v := 0.0; v <= last; v += step {
		c.Seconds = append(c.Seconds, mark{tenths(v / last * chartWidth), fmt.Sprintf("%.10g", v)})
	}
	for n, name := range names {
		var b strings.Builder
		for i := range samples {
			if v, ok := of(&samples[i], name); ok {
				fmt.Fprintf(&b, "%.1f,%.1f ", samples[i].Second/last*chartWidth, chartHeight*(1-v/top))
			}
		}
		c.Lines = append(c.Lines, line{name, colours[n%len(colours)], b.String()})
	}
	return c
}

func tenths(v float64) float64 { return math.Round(10*v) / 10 }

// round returns the next of 1, 2 and 5 times a power of ten.
func round(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, times := range []float64{1, 2, 5} {
		if times*power >= v {
			return times * power
		}
	}
	return 10 * power
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Load test</title>
<style>body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:940px}pre{background:#f6f8fa;padding:1em;overflow:auto}
svg{background:#f6f8fa;width:100%}line{stroke:#d0d7de}text{font-size:11px;fill:#57606a}h2{font-size:1em;margin:1.4em 0 .2em}b{margin-right:1em}</style></head><body>
<h1>Load test</h1><pre>{{.Table}}</pre>
{{range .Charts}}<h2>{{.Title}}</h2>
<svg viewBox="-80 -8 990 190" role="img" aria-label="{{.Title}}"><rect x="0" y="0" width="{{.Warm}}" height="160" fill="#eaeef2"/>
{{range .Values}}<line x1="0" x2="900" y1="{{.At}}" y2="{{.At}}"/><text x="-6" y="{{.At}}" dy="4" text-anchor="end">{{.Text}}</text>{{end}}
{{range .Seconds}}<line x1="{{.At}}" x2="{{.At}}" y1="160" y2="164"/><text x="{{.At}}" y="177" text-anchor="middle">{{.Text}} s</text>{{end}}
{{range .Lines}}<polyline fill="none" stroke="{{.Colour}}" stroke-width="1.5" points="{{.Points}}"/>{{end}}</svg>
<div>{{range .Lines}}<b style="color:{{.Colour}}">{{.Name}}</b>{{end}}</div>
{{end}}<p>By seconds since the load began; grey is the first leases and the warming.</p></body></html>
`))

// WriteHTML writes the result to a page with charts over time, whole or not at all.
func (r *Result) WriteHTML(file string) error {
	var table, page bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return err
	}
	programs := make(map[string]bool)
	var renewed, commands bool
	for _, s := range r.Samples {
		renewed, commands = renewed || s.Renewed != nil, commands || s.Commands != nil
		for name := range s.CPU {
			programs[name] = true
		}
	}
	var charts []chart
	add := func(title string, names []string, v value) {
		charts = append(charts, newChart(title, r.Samples, r.TouchSeconds+r.WarmSeconds, names, v))
	}
	seen := func(v *float64) (float64, bool) {
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	add("Decisions a second", []string{"decided", "denied"}, func(s *Sample, name string) (float64, bool) {
		if name == "denied" {
			return s.Denied, true
		}
		return s.Decisions, true
	})
	if renewed {
		add("Buckets renewed a second", []string{"renewed"}, func(s *Sample, _ string) (float64, bool) { return seen(s.Renewed) })
	}
	if commands {
		add("Redis commands a second", []string{"commands"}, func(s *Sample, _ string) (float64, bool) { return seen(s.Commands) })
	}
	if len(programs) > 0 {
		add("Processors in use", slices.Sorted(maps.Keys(programs)), func(s *Sample, name string) (float64, bool) {
			v, ok := s.CPU[name]
			return v, ok
		})
	}
	if err := pageTemplate.Execute(&page, struct {
		Table  string
		Charts []chart
	}{table.String(), charts}); err != nil {
		return fmt.Errorf("load: page: %w", err)
	}
	return write(file, page.Bytes())
}
