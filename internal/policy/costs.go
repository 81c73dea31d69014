package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

// CostSpec is a limit's cost as a document writes it: weights as decimals, by the cost's name. A cost by its name has
// the weight 1.
type CostSpec struct {
	Weights map[string]string            `json:"weights,omitempty"`
	By      string                       `json:"by,omitempty"`
	Rows    map[string]map[string]string `json:"rows,omitempty"` // by the value of the attribute By
}

// costs reads the names of what requests may cost, and what is reserved of each.
func (p *parser) costs(fd strict.Field) {
	if fd.Node.Kind != yaml.SequenceNode {
		p.f.Add(fd.Line, "costs must be a list of names such as [tokens_in, tokens_out], not %s", strict.Kind(fd.Node))
		return
	}
	for _, n := range strict.Items(p.f, fd.Node, "costs", limit.MaxCosts) {
		if n.Kind != yaml.MappingNode {
			p.namedCost(n)
			continue
		}
		var name, reserve *strict.Field
		for _, k := range strict.Mapping(p.f, n, "a cost") {
			switch k.Name {
			case "name":
				name = &k
			case "reserve":
				reserve = &k
			default:
				strict.Unknown(p.f, k, "a cost", "name", "reserve")
			}
		}
		if name == nil {
			p.f.Add(n.Line, "a cost has no name; write {name: tokens_out, reserve: {quantile: 95%%}}")
			continue
		}
		if cost, ok := p.namedCost(name.Node); ok && reserve != nil {
			p.likely(*reserve, cost)
		}
	}
}

// namedCost reads a cost's name, and notes it.
func (p *parser) namedCost(n *yaml.Node) (name string, ok bool) {
	if name, ok = strict.Name(p.f, n, "a cost"); !ok {
		return "", false
	}
	switch {
	case name == limit.Requests:
		p.f.Add(n.Line, "costs names requests, which every request costs; leave it out")
	case name == "by" || name == "weights":
		p.f.Add(n.Line, "costs names %s, which is a word of a limit's cost; choose another name", name)
	case slices.Contains(p.doc.policy.Costs, name):
		p.f.Add(n.Line, "costs names %s twice", name)
	default:
		p.doc.policy.Costs = append(p.doc.policy.Costs, name)
		return name, true
	}
	return "", false
}

// likely reads what is reserved of a cost.
func (p *parser) likely(fd strict.Field, cost string) {
	what := "reserve of cost " + cost
	l := limit.Likely{Cost: cost}
	written := false
	for _, k := range strict.Mapping(p.f, fd.Node, what) {
		switch k.Name {
		case "quantile":
			written = true
			if s, ok := strict.Text(p.f, k.Node, "quantile of "+what); ok {
				if l.QuantilePPM, ok = parsePercent(s); !ok || l.QuantilePPM < limit.MinQuantilePPM || l.QuantilePPM > limit.MaxQuantilePPM {
					p.f.Add(k.Line, "quantile of %s is %s; it must be %s to %s, such as 95%%", what, limit.Quote(s), percent(limit.MinQuantilePPM), percent(limit.MaxQuantilePPM))
				}
			}
		case "by":
			l.By, _ = strict.Name(p.f, k.Node, "by of "+what)
		case "first":
			if n := strict.Number(p.f, k, what, "units", 1, limit.MaxUnits); n != nil {
				l.First = *n
			}
		default:
			strict.Unknown(p.f, k, what, "quantile", "by", "first")
		}
	}
	if !written && (fd.Node.Kind == yaml.MappingNode || strict.IsNull(fd.Node)) {
		p.f.Add(fd.Line, "%s has no quantile; write which part of the requests is to cost no more, such as quantile: 95%%", what)
	}
	p.doc.policy.Likely = append(p.doc.policy.Likely, l)
}

// costsOf writes the policy's costs as a document does.
func costsOf(p *limit.Policy) string {
	all := slices.Clone(p.Costs)
	for _, l := range p.Likely {
		words := "quantile: " + percent(l.QuantilePPM)
		if l.By != "" {
			words += ", by: " + l.By
		}
		if l.First > 0 {
			words += ", first: " + strconv.FormatInt(l.First, 10)
		}
		all[slices.Index(all, l.Cost)] = "{name: " + l.Cost + ", reserve: {" + words + "}}"
	}
	return strings.Join(all, ", ")
}

// cost reads a limit's cost: a name, weights by name, or a table of them by an attribute's value.
func (s *LimitSpec) cost(f *strict.Collector, fd strict.Field, what string) {
	what = "cost of " + what
	if fd.Node.Kind != yaml.MappingNode {
		var name string
		if name, _ = strict.Name(f, fd.Node, what); name != "" {
			s.Cost = &CostSpec{Weights: map[string]string{name: "1"}}
		}
		return
	}
	fields := strict.Mapping(f, fd.Node, what)
	table := slices.ContainsFunc(fields, func(k strict.Field) bool { return k.Name == "by" || k.Name == "weights" })
	if !table {
		s.Cost = &CostSpec{Weights: s.weights(f, fields, "cost", what)}
		return
	}
	s.Cost = &CostSpec{}
	for _, k := range fields {
		s.lines["cost."+k.Name] = k.Line
		switch k.Name {
		case "by":
			s.Cost.By, _ = strict.Name(f, k.Node, "by of "+what)
		case "weights":
			rows := strict.Mapping(f, k.Node, "weights of "+what)
			s.Cost.Rows = make(map[string]map[string]string, len(rows))
			for _, r := range rows {
				key := "cost.weights." + r.Name
				s.lines[key] = r.Line
				s.Cost.Rows[r.Name] = s.weights(f, strict.Mapping(f, r.Node, what), key, what)
			}
		default:
			strict.Unknown(f, k, what, "by", "weights")
		}
	}
}

// weights reads decimals by the names of costs. key is where the lines of their names begin.
func (s *LimitSpec) weights(f *strict.Collector, fields []strict.Field, key, what string) map[string]string {
	all := make(map[string]string, len(fields))
	for _, k := range fields {
		s.lines[key+"."+k.Name] = k.Line
		if v, ok := strict.Text(f, k.Node, fmt.Sprintf("the weight of %s in %s", limit.Quote(k.Name), what)); ok {
			all[k.Name] = v
		}
	}
	return all
}

// cost compiles what the limit's units are of.
func (c *compiler) cost() {
	s := c.s.Cost
	if s == nil {
		return
	}
	l := &c.l
	l.Cost = limit.Weighing{}
	written := s.By != "" || s.Rows != nil
	switch {
	case !written:
		before := len(c.problems)
		l.Cost.Weights = c.weights(s.Weights, "cost")
		if len(c.problems) == before && !slices.ContainsFunc(l.Cost.Weights, func(w limit.Weight) bool { return w.Micros > 0 }) {
			c.bad("cost", "no cost has a weight above 0, so the limit would count nothing; give one, or leave cost out to count requests")
		}
		if l.Cost.Single() == limit.Requests {
			l.Cost = limit.Weighing{}
		}
		return
	case s.By == "":
		c.bad("cost", "its weights need an attribute whose value chooses among them, such as by: model")
		return
	case len(s.Rows) == 0:
		c.bad("cost", "by: %s needs weights, by the attribute's value, such as weights: {small: {tokens: 1}, \"*\": {tokens: 4}}", s.By)
		return
	case len(s.Rows) > limit.MaxWeightRows:
		c.bad("cost.weights", "weights has %d values; at most %d are allowed", len(s.Rows), limit.MaxWeightRows)
		return
	}
	l.Cost.By = s.By
	for _, value := range sortedKeys(s.Rows) {
		key := "cost.weights." + value
		switch {
		case value == "" || !limit.ValidValue(value):
			c.bad(key, "%s is not an attribute's value; it has 1 to %d bytes without control characters", limit.Quote(value), limit.MaxValueLen)
		case value != limit.AnyValue && strings.Contains(value, "*"):
			c.bad(key, "%s has a *; write a whole value, or \"*\" for all that no other row has", limit.Quote(value))
		case len(s.Rows[value]) == 0:
			c.bad(key, "the weights of %s are empty; write requests: 0 for requests that count nothing", limit.Quote(value))
		default:
			l.Cost.Rows = append(l.Cost.Rows, limit.WeighingRow{Value: value, Weights: c.weights(s.Rows[value], key)})
		}
	}
}

// weights compiles decimals by the names of costs, in the names' order.
func (c *compiler) weights(written map[string]string, key string) (all []limit.Weight) {
	for _, name := range sortedKeys(written) {
		if name != limit.Requests && !slices.Contains(c.at.costs, name) {
			at := key + "." + name
			if _, ok := c.s.lines[at]; !ok {
				at = key
			}
			c.bad(at, "there is no cost %s; the costs are %s", limit.Quote(name), strings.Join(append([]string{limit.Requests}, c.at.costs...), ", "))
			continue
		}
		micros, ok := parseWeight(written[name])
		if !ok {
			c.bad(key+"."+name, "the weight of %s is %s; it must be a decimal of 0 to %d with at most six decimals, such as 4.5", name, limit.Quote(written[name]), int64(limit.MaxWeight))
			continue
		}
		all = append(all, limit.Weight{Cost: name, Micros: micros})
	}
	return all
}

// parseWeight reads a decimal as millionths.
func parseWeight(s string) (micros int64, ok bool) {
	whole, frac, dot := strings.Cut(s, ".")
	if whole == "" || len(whole) > len("1000000000") || dot && frac == "" || len(frac) > 6 || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, false
	}
	micros, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	return micros, err == nil && micros <= limit.MaxWeight*limit.Micro
}

// weighing writes what a limit's units are of, as a document does; empty for requests.
func weighing(w *limit.Weighing) string {
	switch single := w.Single(); {
	case w.Plain():
		return ""
	case single != "":
		return single
	case w.By == "":
		return weights(w.Weights)
	}
	rows := make([]string, len(w.Rows))
	for i, r := range w.Rows {
		rows[i] = r.Value + ": " + weights(r.Weights)
	}
	return "by " + w.By + " {" + strings.Join(rows, ", ") + "}"
}

func weights(all []limit.Weight) string {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = w.Cost + ": " + decimal(w.Micros)
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// decimal writes millionths without zeros at its end.
func decimal(micros int64) string {
	s := strconv.FormatInt(micros/limit.Micro, 10)
	if rest := micros % limit.Micro; rest > 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", rest), "0")
	}
	return s
}
