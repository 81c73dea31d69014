package size

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// A table says how often a lease is renewed at rest, and how many requests wait for that. It was simulated with the
// product's own agents and store (loadtest/sim). No short formula would do: terms grow and shrink with demand, supply,
// and what others do. The table has four dimensions:
//
//   - who else asks for the bucket (company).
//   - how long its burst lasts at its rate.
//   - how much is asked for, as part of its limit.
//   - requests a second of one gateway.
//
// Between its points it is interpolated in logarithms, so it has no cliffs.

// company is who asks for a bucket.
type company int

const (
	together company = iota // ten gateways or more, more than ten requests a second in all
	seldom                  // those of a bucket of less: there each request asks (seldomDemand)
	alone                   // one gateway, which others leave nothing to wait for
)

var companies = [...]string{"together", "seldom", "alone"}

// The table's points.
var (
	bursts  = [...]float64{2, 20, 120, 7200} // seconds of the rate
	demands = [...]float64{0.1, 0.5, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 2, 3}
	rates   = [...]float64{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000}
)

// point is the renewals a second of a lease, and how many of its gateway's requests wait for them. The zero point was
// not simulated.
type point struct{ renewals, waits float64 }

type leaseTable [len(companies)][len(bursts)][len(rates)][len(demands)]point

//go:embed leases.txt
var leasesText string

var leases = readLeases(leasesText)

// simulated reports whether the table has that point. A seldom bucket is asked for no more than seldomDemand; a single
// gateway makes a difference only where the bucket is scarce.
func simulated(c company, d, x float64) bool {
	return c == together || c == seldom && d <= seldomDemand || c == alone && d >= oftenDemand && x >= 1
}

// write prints the table as readLeases reads it: renewals/waits of a lease and second.
func (t *leaseTable) write(w io.Writer) {
	fmt.Fprint(w, "# Renewals/waits a second of a lease at rest, simulated. Made by: go test -run Leases -measure -timeout 1h ./loadtest/size\n"+
		"# Each line is of that many requests a second at each gateway. Beyond the limit a burst of 600 s stands for that of 7200 s, which takes hours to use up.\n")
	for c := range t {
		for b := range t[c] {
			fmt.Fprintf(w, "\n# %s, a burst of %g s\n#", companies[c], bursts[b])
			for _, x := range demands {
				fmt.Fprintf(w, " %g×", x)
			}
			fmt.Fprintln(w)
			for d, row := range t[c][b] {
				if !simulated(company(c), rates[d], demands[len(demands)-1]) {
					continue
				}
				fmt.Fprintf(w, "%g", rates[d])
				for _, p := range row {
					if p.renewals == 0 {
						fmt.Fprint(w, " -")
						continue
					}
					fmt.Fprintf(w, " %.4g/%.3g", p.renewals, p.waits)
				}
				fmt.Fprintln(w)
			}
		}
	}
}

// readLeases panics if the table is malformed, because it is part of the program.
func readLeases(text string) *leaseTable {
	t := new(leaseTable)
	c, b := -1, -1
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if _, burst, ok := strings.Cut(line, ", a burst of "); ok && len(f) > 1 {
			c = slices.Index(companies[:], strings.Trim(f[1], ","))
			b = slices.IndexFunc(bursts[:], func(s float64) bool { return strings.TrimSpace(burst) == fmt.Sprintf("%g s", s) })
		}
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		d := slices.IndexFunc(rates[:], func(r float64) bool { return fmt.Sprint(r) == f[0] })
		if b < 0 || c < 0 || d < 0 || len(f) != 1+len(demands) {
			panic("size: leases.txt has another form: " + line)
		}
		for x, cell := range f[1:] {
			p := &t[c][b][d][x]
			if cell == "-" {
				continue
			}
			if _, err := fmt.Sscanf(cell, "%g/%g", &p.renewals, &p.waits); err != nil {
				panic(fmt.Sprintf("size: leases.txt: %s: %v", cell, err))
			}
		}
	}
	return t
}

// between says where v lies among points: after which, and how far to the next, in logarithms. Values beyond them count
// as the nearest.
func between(points []float64, v float64) (at int, part float64) {
	if v <= points[0] {
		return 0, 0
	}
	for i := range points[1:] {
		if v < points[i+1] {
			return i, math.Log(v/points[i]) / math.Log(points[i+1]/points[i])
		}
	}
	return len(points) - 2, 1
}

// blend goes from one point to another. Renewals are blended in logarithms. The waited-for part of them is blended
// linearly, because it may be zero.
func (p point) blend(q point, part float64) point {
	if part <= 0 {
		return p
	}
	if part >= 1 {
		return q
	}
	waits := p.waits/p.renewals*(1-part) + q.waits/q.renewals*part
	p.renewals *= math.Pow(q.renewals/p.renewals, part)
	p.waits = p.renewals * waits
	return p
}

// of looks up the renewals of a lease of which d units a second are asked for at one gateway. Rates beyond the table
// are extrapolated: below it the cost of a request stays the same, above it the cost of a lease.
func (t *leaseTable) of(c company, d, x, burst float64) point {
	b, bPart := between(bursts[:], burst)
	i, dPart := between(rates[:], d)
	k, xPart := between(demands[:], x)
	row := func(b, i int) point { return t[c][b][i][k].blend(t[c][b][i][k+1], xPart) }
	plane := func(b int) point {
		if dPart == 0 {
			return row(b, i)
		}
		return row(b, i).blend(row(b, i+1), dPart)
	}
	p := plane(b).blend(plane(b+1), bPart)
	if d < rates[0] {
		p.renewals, p.waits = p.renewals*d/rates[0], p.waits*d/rates[0]
	}
	return p
}

// renewed returns a second's renewals of each lease of a bucket, and the waits of its gateway's requests. Each of so
// many gateways asks for d units a second, together x times the limit. burst is how long the bucket's burst lasts at
// its rate.
func renewed(gateways, d, x, burst float64) point {
	p := leases.of(together, d, x, burst)
	if gateways < crowd && x >= 1 {
		one := leases.of(alone, max(d, oftenDemand), x, burst)
		one.renewals, one.waits = min(one.renewals, d), min(one.waits, d)
		p = one.blend(p, math.Log(gateways)/math.Log(crowd))
	}
	if all := gateways * d; all < askDemand {
		few := leases.of(seldom, min(d, seldomDemand), x, burst)
		p = few.blend(p, math.Log(all/seldomDemand)/math.Log(askDemand/seldomDemand))
	}
	return p
}
