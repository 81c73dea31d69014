package load

import (
	"bytes"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

// line is one of a chart's.
type line struct {
	Name, Colour, Points string
}

// chart is lines over the seconds of a run.
type chart struct {
	Title, Most string
	Lines       []line
	Warm        float64 // where what is measured begins
}

const chartWidth, chartHeight = 900.0, 160.0

var colours = []string{"#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a"}

func newChart(title, unit string, samples []Sample, warm float64, names []string, value func(s *Sample, name string) float64) chart {
	most, last := 0.0, 1.0
	for i := range samples {
		last = max(last, samples[i].Second)
		for _, name := range names {
			most = max(most, value(&samples[i], name))
		}
	}
	c := chart{Title: title, Most: fmt.Sprintf("%.4g %s", most, unit), Warm: min(warm/last, 1) * chartWidth}
	for n, name := range names {
		var b strings.Builder
		for i := range samples {
			fmt.Fprintf(&b, "%.1f,%.1f ", samples[i].Second/last*chartWidth, chartHeight-value(&samples[i], name)/max(most, 1e-9)*chartHeight)
		}
		c.Lines = append(c.Lines, line{name, colours[n%len(colours)], b.String()})
	}
	return c
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Load test</title>
<style>body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:940px}pre{background:#f6f8fa;padding:1em;overflow:auto}
svg{background:#f6f8fa;width:100%}h2{font-size:1em;margin:1.4em 0 .2em}b{margin-right:1em}</style></head><body>
<h1>Load test</h1><pre>{{.Table}}</pre>
{{range .Charts}}<h2>{{.Title}}, up to {{.Most}}</h2>
<svg viewBox="-2 -2 904 164" role="img" aria-label="{{.Title}}"><rect x="0" y="0" width="{{.Warm}}" height="160" fill="#eaeef2"/>
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
	of := func(title, unit string, names []string, value func(s *Sample, name string) float64) chart {
		return newChart(title, unit, r.Samples, r.TouchSeconds+r.WarmSeconds, names, value)
	}
	charts := []chart{
		of("Decisions a second", "", []string{"decided", "denied"}, func(s *Sample, name string) float64 {
			if name == "denied" {
				return s.Denied
			}
			return s.Decisions
		}),
	}
	programs := make(map[string]bool)
	for _, s := range r.Samples {
		for name := range s.CPU {
			programs[name] = true
		}
	}
	if len(programs) > 0 {
		charts = append(charts,
			of("Buckets renewed a second", "", []string{"renewed"}, func(s *Sample, _ string) float64 { return s.Renewed }),
			of("Redis commands a second", "", []string{"commands"}, func(s *Sample, _ string) float64 { return s.Commands }),
			of("Processors in use", "", slices.Sorted(maps.Keys(programs)), func(s *Sample, name string) float64 { return s.CPU[name] }))
	}
	if err := pageTemplate.Execute(&page, struct {
		Table  string
		Charts []chart
	}{table.String(), charts}); err != nil {
		return fmt.Errorf("load: page: %w", err)
	}
	return write(file, page.Bytes())
}
