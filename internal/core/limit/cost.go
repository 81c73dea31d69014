package limit

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Bounds of what a policy says of costs.
const (
	MaxCosts      = 15       // costs that a policy names, beside Requests
	MaxWeight     = MaxUnits // of one cost in a limit; a weight has at most six decimals
	MaxWeightRows = 256      // values of an attribute that have weights of their own
)

// Requests is the cost that is built in: how many requests a request counts as. It is the first of every policy's costs.
const Requests = "requests"

// Cost is units of one of the costs that a policy names.
type Cost struct {
	Name  string
	Units int64 // 0 to MaxUnits
}

// Costs are the names of the costs of a policy: a request says what it costs by them. It is immutable. The nil Costs has
// Requests alone.
type Costs struct {
	names  []string
	likely []Likely
}

// NewCosts returns the costs of that many names at most MaxCosts, Requests not among them, and what is reserved of them.
func NewCosts(names []string, likely ...Likely) *Costs {
	return &Costs{names: slices.Clone(names), likely: slices.Clone(likely)}
}

// Names returns the names, in the policy's order, without Requests. They must not be changed.
func (c *Costs) Names() []string {
	if c == nil {
		return nil
	}
	return c.names
}

// Likely returns what is reserved of a cost; false where it is the most.
func (c *Costs) Likely(name string) (Likely, bool) {
	if c != nil {
		for i := range c.likely {
			if c.likely[i].Cost == name {
				return c.likely[i], true
			}
		}
	}
	return Likely{}, false
}

// Amounts are a request's units of each cost, in the policy's order; those of Requests come first.
type Amounts [1 + MaxCosts]int64

// index returns the place of a cost in Amounts; -1 for none.
func (c *Costs) index(name string) int {
	if c != nil {
		for i := range c.names {
			if c.names[i] == name {
				return 1 + i
			}
		}
	}
	if name == Requests {
		return 0
	}
	return -1
}

// Amounts writes what a request costs to a, which is zero before: so many requests, and other costs. Without an error it
// allocates nothing. The error says which cost cannot be: one that the policy does not name, one that is named twice,
// or units out of range. The others are written all the same.
func (c *Costs) Amounts(a *Amounts, requests int64, costs []Cost) (err error) {
	if a[0] = requests; uint64(requests) > MaxUnits {
		a[0], err = 0, outOfRange(Requests, requests)
	}
	named := uint32(1) // Requests is not named besides
	for k := range costs {
		of := &costs[k]
		if i := c.index(of.Name); i > 0 && named>>i&1 == 0 && uint64(of.Units) <= MaxUnits {
			a[i] = of.Units
			named |= 1 << i
		} else {
			err = c.fault(of, i)
		}
	}
	return err
}

// fault says why a cost with a place, -1 for none, cannot be.
func (c *Costs) fault(of *Cost, i int) error {
	switch {
	case i < 0:
		return c.unknown(of.Name)
	case i == 0:
		return fmt.Errorf("%s is no cost to be named: its units have a place of their own", Requests)
	case uint64(of.Units) > MaxUnits:
		return outOfRange(of.Name, of.Units)
	}
	return fmt.Errorf("cost %s is there twice", of.Name)
}

func outOfRange(name string, units int64) error {
	return fmt.Errorf("cost %s is %d units; it must be 0 to %d", name, units, int64(MaxUnits))
}

func (c *Costs) unknown(name string) error {
	if c == nil || len(c.names) == 0 {
		return fmt.Errorf("there is no cost %s; the policy names none", Quote(name))
	}
	return fmt.Errorf("there is no cost %s; the policy names %s", Quote(name), strings.Join(c.names, ", "))
}

// Weighing is how a limit makes units of what a request costs. The zero Weighing counts requests.
type Weighing struct {
	Weights []Weight      // by the cost's name; the limit's units are their sum
	By      string        // the attribute whose value chooses a row; empty where Weights are for all requests
	Rows    []WeighingRow // by value
}

// Weight is what one unit of a cost counts.
type Weight struct {
	Cost   string
	Micros int64 // 0 to MaxWeight × Micro
}

// WeighingRow is the weights of requests whose attribute has a value. AnyValue is for those that no other row has.
type WeighingRow struct {
	Value   string
	Weights []Weight
}

// AnyValue is the value of the row for all requests that no other has.
const AnyValue = "*"

// Plain reports whether the limit counts requests.
func (w *Weighing) Plain() bool { return w.By == "" && len(w.Weights) == 0 }

// Single returns the one cost that the limit's units are of; empty where it weighs.
func (w *Weighing) Single() string {
	switch {
	case w.Plain():
		return Requests
	case w.By == "" && len(w.Weights) == 1 && w.Weights[0].Micros == Micro:
		return w.Weights[0].Cost
	}
	return ""
}

// Equal reports whether two say the same.
func (w *Weighing) Equal(o *Weighing) bool {
	return w.By == o.By && slices.Equal(w.Weights, o.Weights) &&
		slices.EqualFunc(w.Rows, o.Rows, func(a, b WeighingRow) bool {
			return a.Value == b.Value && slices.Equal(a.Weights, b.Weights)
		})
}

// weigher is a Weighing ready to be asked. The zero weigher counts requests.
type weigher struct {
	all  *Weights // for all requests, or where by is there, for those that no row has; nil for none
	by   string
	rows map[string]*Weights
}

// newWeigher compiles w. A cost that the policy does not name counts nothing: no request can have it.
func newWeigher(w *Weighing, costs *Costs) weigher {
	if w.Plain() {
		return weigher{}
	}
	if w.By == "" {
		return weigher{all: newWeights(w.Weights, costs)}
	}
	out := weigher{by: w.By, rows: make(map[string]*Weights, len(w.Rows))}
	for i := range w.Rows {
		if row := newWeights(w.Rows[i].Weights, costs); w.Rows[i].Value == AnyValue {
			out.all = row
		} else {
			out.rows[w.Rows[i].Value] = row
		}
	}
	return out
}

// Weighs reports whether the limit's units may be others than a request's units of Requests.
func (r *Rule) Weighs() bool { return r.weigher.all != nil || r.weigher.by != "" }

// Weights returns the weights by which the limit makes units of this request's costs. They depend on the attributes
// alone. It reports false where the limit has none for the request's value. It allocates nothing.
func (r *Rule) Weights(attributes []Attribute) (w *Weights, ok bool) {
	if !r.Weighs() {
		return ofRequests, true
	}
	if r.weigher.by == "" {
		return r.weigher.all, true
	}
	if w = r.weigher.rows[lookup(attributes, r.weigher.by)]; w == nil {
		w = r.weigher.all
	}
	return w, w != nil
}

// Weights makes a limit's units of what a request costs. It is immutable.
type Weights struct {
	only  uint8  // the one cost, if its weight is 1; else no cost
	small bool   // the sum is below 2^63 for all amounts
	terms []term // of weights above 0
}

// ofRequests are the weights of limits that count requests.
var ofRequests = &Weights{only: 0}

// several is no cost's place in Amounts.
const several = 1 + MaxCosts

type term struct {
	cost   int // its place in Amounts
	micros int64
}

func newWeights(weights []Weight, costs *Costs) *Weights {
	w := &Weights{only: several}
	sum := int64(0)
	for _, weight := range weights {
		if i := costs.index(weight.Cost); i >= 0 && weight.Micros > 0 {
			w.terms = append(w.terms, term{i, weight.Micros})
			sum += weight.Micros // of at most 16 × 10^15
		}
	}
	w.small = sum <= (1<<63-1-Micro)/MaxUnits
	if len(w.terms) == 1 && w.terms[0].micros == Micro {
		w.only = uint8(w.terms[0].cost)
	}
	return w
}

// Units returns the limit's units of a request that costs so much, which are whole: the sum of all costs is rounded up
// once. It reports false where there are more than MaxUnits.
func (w *Weights) Units(a *Amounts) (int64, bool) {
	if i := w.only; i < several {
		return a[i], true
	}
	return w.sum(a, MaxUnits)
}

// Booked is Units of what happened already. It reports false where there are more than MaxBooked.
func (w *Weights) Booked(a *Amounts) (int64, bool) {
	if i := w.only; i < several {
		return a[i], true
	}
	return w.sum(a, MaxBooked)
}

// Refunded is Booked of what is given back: rounded down, so that the rest still is what it costs.
func (w *Weights) Refunded(a *Amounts) (int64, bool) {
	up, ok := w.Booked(a)
	if !ok || w.only < several {
		return up, ok
	}
	micros := int64(0)
	for i := range w.terms { // below 2^63, since each factor is below Micro
		micros += (w.terms[i].micros % Micro) * (a[w.terms[i].cost] % Micro) % Micro
	}
	if micros%Micro > 0 {
		up--
	}
	return up, ok
}

// sum is the units of several costs. It reports false where there are more than most.
func (w *Weights) sum(a *Amounts, most int64) (n int64, ok bool) {
	if !w.small {
		return w.large(a, most)
	}
	sum := int64(Micro - 1)
	for i := range w.terms {
		sum += w.terms[i].micros * a[w.terms[i].cost]
	}
	n = sum / Micro
	return n, n <= most
}

// large is sum where that may need more than a word.
func (w *Weights) large(a *Amounts, most int64) (n int64, ok bool) {
	high, low := uint64(0), uint64(Micro-1)
	for i := range w.terms {
		// Each is below 10^24, and there are at most 16: far below 2^128.
		h, l := bits.Mul64(uint64(w.terms[i].micros), uint64(a[w.terms[i].cost]))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high += h + carry
	}
	if high != 0 {
		return 0, false // 2^64 micros are more than MaxBooked
	}
	low /= Micro
	return int64(low), low <= uint64(most)
}
