package sim

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// The chart's measures, in pixels.
const (
	chartWidth  = 640
	plotLeft    = 8
	plotWidth   = 560
	plotHeight  = 110
	upperTop    = 40
	lowerTop    = 190
	chartHeight = 320
)

type curve struct {
	name, color string
	values      []float64
	dashed      bool
}

// Chart draws a run: above, what was admitted each second and what one central
// limiter admits; below, tokens out and renewals each second. Every number is
// rounded, so that a seed gives one file.
func (r *Result) Chart() []byte {
	step := float64(max(r.Scenario.Duration/samples, bin)) / float64(second)
	admitted, ideal := make([]float64, len(r.Series)), make([]float64, len(r.Series))
	out, renewals := make([]float64, len(r.Series)), make([]float64, len(r.Series))
	for i, s := range r.Series {
		admitted[i], ideal[i] = float64(s.Admitted)/step, float64(s.Ideal)/step
		out[i], renewals[i] = float64(s.Out), float64(s.Renewals)/step
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="16" font-size="13">%s</text>`+"\n", plotLeft, escape(r.Scenario.Name))
	together := most(admitted, ideal)
	panel(&b, upperTop, []curve{{"admitted /s", "#1f77b4", admitted, false}, {"ideal /s", "#d62728", ideal, true}}, []float64{together, together})
	panel(&b, lowerTop, []curve{{"tokens out", "#2ca02c", out, false}, {"renewals /s", "#9467bd", renewals, false}}, []float64{most(out), most(renewals)})
	fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
		plotLeft, chartHeight-6, plotLeft+plotWidth, chartHeight-6, length(r.Scenario.Duration))
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// panel draws curves, each up to its own most, with a legend above.
func panel(b *bytes.Buffer, top int, curves []curve, tops []float64) {
	fmt.Fprintf(b, `<path d="M%d %dh%dv%dh-%dz" fill="none" stroke="#bbb"/>`+"\n", plotLeft, top, plotWidth, plotHeight, plotWidth)
	x := plotLeft
	for i, c := range curves {
		legend := fmt.Sprintf("%s, top %s", c.name, count(tops[i]))
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s">%s</text>`, x, top-5, c.color, legend)
		x += 230
		dash := ""
		if c.dashed {
			dash = ` stroke-dasharray="4 3"`
		}
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.2"%s d="%s"/>`+"\n", c.color, dash, c.path(top, tops[i]))
	}
}

// path is a line through the points, in steps relative to the one before.
func (c *curve) path(top int, most float64) string {
	var s strings.Builder
	px, py := 0, 0
	for i, v := range c.values {
		x := plotLeft + (i+1)*plotWidth/max(len(c.values), 1)
		y := top + plotHeight
		if most > 0 {
			y -= int(math.Round(v / most * (plotHeight - 4)))
		}
		if i == 0 {
			fmt.Fprintf(&s, "M%d %d", x, y)
		} else {
			fmt.Fprintf(&s, "l%d %d", x-px, y-py)
		}
		px, py = x, y
	}
	return s.String()
}

func most(curves ...[]float64) float64 {
	var m float64
	for _, c := range curves {
		for _, v := range c {
			m = math.Max(m, v)
		}
	}
	return m
}

// count is a number that a reader takes in at a glance.
func count(v float64) string {
	switch {
	case v >= 100:
		return thousands(int64(math.Round(v)))
	case v >= 1:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func length(us int64) string {
	switch {
	case us >= hour:
		return fmt.Sprintf("%g h", float64(us)/float64(hour))
	case us >= 3*minute:
		return fmt.Sprintf("%.3g min", float64(us)/float64(minute))
	default:
		return fmt.Sprintf("%g s", float64(us)/float64(second))
	}
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// Curve is what a figure comes to at each of a chart's points.
type Curve struct {
	Name   string
	Values []float64
}

// Curves draws figures over common points, each up to its own most.
func Curves(title string, points []string, curves ...Curve) []byte {
	const height = upperTop + plotHeight + 24
	colors := []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd"}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="16" font-size="13">%s</text>`+"\n", plotLeft, escape(title))
	drawn, tops := make([]curve, len(curves)), make([]float64, len(curves))
	for i, c := range curves {
		drawn[i], tops[i] = curve{escape(c.Name), colors[i%len(colors)], c.Values, false}, most(c.Values)
	}
	panel(&b, upperTop, drawn, tops)
	for i, p := range points {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLeft+(i+1)*plotWidth/len(points), height-6, escape(p))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
