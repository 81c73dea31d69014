package agent

import (
	"strings"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Resolution is what a request came to: the limits that it meets in the order of asking, and their
// buckets. It is immutable, but for where their tokens are and what those leave for it to say. What asking needs is in front, in a cache line of its own, for the allocator puts
// what takes two where one begins: of a bucket whose tokens lodge there nothing else is read.
type Resolution struct {
	*path
	at    [memoLimits]ref[counter] // the tokens of entries: at home, or in lodge; written with the memo's mutex
	lodge [memoLodged]counter      // of those that lodge here: see lodging. Of a request that is plain, hints

	entries [memoLimits]*Entry
	set     *Set
	is      Key
	later   counter // when there may be a unit of a limit, where its tokens do not say it themselves: see says
}

// path is what requests share that name the same attributes and meet the same limits of a plan.
type path struct {
	items     [memoLimits]*Item
	limits    int
	strictest int
	shape     int
	plain     bool
	slots     bool
	holds     [memoLimits]bool // Item.Hold
	inherited [memoLimits]bool // Item.Inherited
}

// shape is a list of names of attributes.
type shape struct {
	at     [memoAttributes]uintptr // where they are
	names  []string
	number uint8
}

// shapes are all shapes by their numbers, and some by where their last name is. That is known while the request's key is still to be made,
// so that a hit looks at its names meanwhile, and of its group's line only compares the number.
type shapes struct {
	all  [memoShapes]ref[shape]
	near [memoNear]ref[shape]
}

// place is where a shape is among those that are near.
func (*shapes) place(name string, names int) uint8 {
	at := address(name)
	return uint8(at^at>>6^uintptr(names)) % memoNear
}

// Limits returns how many limits the request meets: at least one.
func (p *path) Limits() int { return p.limits }

// Strictest returns which of them is the strictest.
func (p *path) Strictest() int { return p.strictest }

// Plain reports whether it is one limit, of which nothing is to be announced before units are taken, nor
// anything given back at the request's end; see Item.
func (p *path) Plain() bool { return p.plain }

// Slots reports whether one of the limits is of slots.
func (p *path) Slots() bool { return p.slots }

// Item returns limit i.
func (p *path) Item(i int) *Item { return p.items[i] }

// Entry returns the bucket of limit i, which may be no more.
func (r *Resolution) Entry(i int) *Entry { return r.entries[i] }

// Set returns the set that held the request.
func (r *Resolution) Set() *Set { return r.set }

// has reports whether a request names the same attributes. How long its names are is in its key, and not looked at again.
func (s *shape) has(attributes []limit.Attribute) bool {
	return s.isOf(attributes) || sameNames(s.names, attributes)
}

// isOf reports whether a request names the same attributes by the strings that are kept: one that does not may name their like.
func (s *shape) isOf(attributes []limit.Attribute) bool {
	if len(s.names) != len(attributes) {
		return false
	}
	var elsewhere uintptr
	for i := range attributes {
		elsewhere |= s.at[i&(memoAttributes-1)] ^ address(attributes[i].Name)
	}
	return elsewhere == 0
}

// address is where a string is. Names are kept where nobody writes, so one at the same place is the same.
func address(s string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(s))) }

func sameNames(names []string, attributes []limit.Attribute) bool {
	if len(names) != len(attributes) {
		return false
	}
	for i := range attributes {
		if attributes[i].Name != names[i] {
			return false
		}
	}
	return true
}

// Cell is where a bucket's units are. The zero Cell is none.
type Cell struct{ tokens *counter }

// None reports whether it is none.
func (c Cell) None() bool { return c.tokens == nil }

// Take is Bucket.Take, for as long as the caller has in hand what it got the cell with. Where it fails the units may have moved: see Resolution.TakeMoved.
func (c Cell) Take(n int64) bool { return take(c.tokens, n) }

// moved reports whether the units are elsewhere by now: the bucket knows where.
func (c Cell) moved() bool { return c.tokens.Load() < lodgedBelow }

// ownName returns a name in memory that nobody writes: for one with a meaning of its own the constant,
// which a program has only once.
func ownName(name string) string {
	for _, n := range [...]string{"tenant", "user", "ip", "endpoint", "method", "priority"} {
		if n == name {
			return n
		}
	}
	return strings.Clone(name)
}

// TakeMoved takes n units of the bucket of limit i whose cell had none, if they are elsewhere by now.
func (r *Resolution) TakeMoved(c Cell, i int, n int64) bool { return c.moved() && r.entries[i].Take(n) }

// Take takes n units of every bucket, in the order of asking, and says before it what has to be known of each (Item). It
// returns how many buckets had them: where one did not, its units are announced, those of the ones before are in
// hand, and the others were not asked.
//
// Closed is asked before, so that all tokens are waited for together.
func (r *Resolution) Take(n int64) int {
	limits := r.limits
	for i := range limits {
		if r.holds[i&(memoLimits-1)] {
			r.hot(i & (memoLimits - 1)).pending.Add(n)
		}
		if r.inherited[i&(memoLimits-1)] {
			r.entries[i&(memoLimits-1)].Inherit(n)
		}
		if c := (Cell{r.at[i&(memoLimits-1)].Load()}); !c.Take(n) && !r.TakeMoved(c, i&(memoLimits-1), n) {
			return i
		}
	}
	for i := range limits {
		if r.holds[i&(memoLimits-1)] {
			r.hot(i & (memoLimits - 1)).pending.Add(-n)
		}
	}
	return limits
}

// Closed returns the first limit that has no unit, if its bucket's tokens say so, be that over or not: see Shut; -1 for none. One that is dry and does
// not say so comes before those that do: it may deny for longer.
func (r *Resolution) Closed() int {
	least := int64(0)
	for i := range r.limits {
		least = min(least, r.at[i&(memoLimits-1)].Load().Load())
	}
	if least >= shutTo {
		return -1
	}
	return r.closed()
}

func (r *Resolution) closed() int {
	for i := range r.limits {
		switch tokens := r.Cell(i).tokens.Load(); {
		case isShut(tokens):
			return i
		case tokens < Unit:
			return -1
		}
	}
	return -1
}

// Cell is where the units of limit i are, but for a request that is Plain, of which Recall says it.
func (r *Resolution) Cell(i int) Cell { return Cell{r.at[i&(memoLimits-1)].Load()} }

// NearEntries begins to bring the resolution itself, which knows the entries.
func (r *Resolution) NearEntries() { near(unsafe.Pointer(r)) }

// Where the rest of a plain request's bucket is, as its last request that found it dry saw it, for each part says where the next is: hints, of
// which nothing is read. They are where tokens would lodge, which never do here.
const (
	hintFrom  = iota // Bucket.from
	hintScope        // its scope; 0 where the last was denied for certain (Bucket.Shut), which reads no more
	hintBook         // its book, where that is open, likewise; or else hintTerms and the terms, which who opens it reads
)

// hintTerms says in hintBook that it is the terms.
const hintTerms = 1

// bookLines of an open book, a cache line each, are what a request mostly reads.
const bookLines = 5

// Sought is what a request came to before whose units are not in the index.
type Sought struct {
	known *Resolution
	dry   *counter // where they would be, if there were any; nil for elsewhere
}

// Until is when what tokens say of denials is over: before it a decision reads no more than them and the resolution. 0 where they say nothing. It is for
// after the first step.
func (s Sought) Until() int64 {
	tokens := int64(0)
	if s.dry != nil {
		tokens = s.dry.Load()
	} else if i := s.known.Closed(); i >= 0 {
		tokens = s.known.Cell(i).tokens.Load()
	}
	if !isShut(tokens) {
		return 0
	}
	return shutTime(tokens)
}

// Steps is how many there are of Near.
const Steps = 3

// Near begins to bring what a decision reads of the buckets that have no units, step by step, from 0 on, for each brings what the one before said where it is.
func (s Sought) Near(step int) {
	r := s.known
	if r.plain {
		switch {
		case step == 0 && s.dry == nil:
			prefetch(uintptr(unsafe.Pointer(r.at[0].Load())))
		case step == 1 && (s.dry != nil || r.at[0].Load().Load() < Unit):
			r.nearPlain()
		}
		return
	}
	limits := r.limits
	for i := range limits {
		at := r.at[i&(memoLimits-1)].Load()
		switch {
		case step == 0:
			prefetch(uintptr(unsafe.Pointer(at)))
		case at.Load() >= Unit:
		case step == 1:
			near(unsafe.Pointer(r.entries[i&(memoLimits-1)]))
		default:
			near(unsafe.Pointer(r.entries[i&(memoLimits-1)].from.Load()))
		}
	}
}

// nearPlain begins to bring all that a plain request reads of its bucket that is dry, as far as hints say where it is.
func (r *Resolution) nearPlain() {
	r.nearShut()
	scope, book := uintptr(r.lodge[hintScope].Load()), uintptr(r.lodge[hintBook].Load())
	if scope != 0 {
		prefetch(scope)
		prefetch(scope + unsafe.Offsetof(Scope{}.terms))
	}
	if book&hintTerms != 0 {
		prefetch(book &^ hintTerms)
		return
	}
	for line := uintptr(0); book != 0 && line < bookLines; line++ {
		prefetch(book + 64*line)
	}
}

// nearShut begins to bring what a plain request reads of its bucket to be denied for certain and, where the last was not, the packed book and its latch.
func (r *Resolution) nearShut() {
	e := r.entries[0]
	prefetch(uintptr(unsafe.Pointer(r.at[0].Load())))
	prefetch(uintptr(unsafe.Pointer(&e.marks)))
	prefetch(uintptr(unsafe.Pointer(&e.from)))
	if from := uintptr(r.lodge[hintFrom].Load()); from != 0 {
		prefetch(from)
		prefetch(from + seldomRead - 1)
	}
	if r.lodge[hintScope].Load() != 0 {
		prefetch(uintptr(unsafe.Pointer(e)))
		e.mu.near()
	}
}

// FoundDry notes where the bucket of a plain request is whose cell had not the units, and begins to bring what the request reads of it, so that
// it is waited for together.
func (r *Resolution) FoundDry() {
	r.nearShut()
	r.hint(hintFrom, unsafe.Pointer(r.entries[0].from.Load()))
}

// WasShut notes, for the next time, whether a plain request was denied for certain.
func (r *Resolution) WasShut(was bool) {
	if was {
		r.hint(hintScope, nil)
		r.hint(hintBook, nil)
		return
	}
	e := r.entries[0]
	r.hint(hintScope, unsafe.Pointer(e.scope()))
	if s := e.seldom(); s != nil {
		if book := s.book.Load(); book != nil {
			r.hint(hintBook, unsafe.Pointer(book))
			return
		}
	}
	r.hint(hintBook, unsafe.Add(unsafe.Pointer(e.goesBy()), hintTerms)) // into it, by a byte
}

// hint notes where a part is.
func (r *Resolution) hint(part int, at unsafe.Pointer) {
	if to := int64(uintptr(at)); r.lodge[part].Load() != to {
		r.lodge[part].Store(to)
	}
}

// hot is what requests touch of the bucket of limit i, whose tokens do not lodge: they are in front of it. Its entry, which knows it too, is
// in another line.
func (r *Resolution) hot(i int) *hot { return (*hot)(unsafe.Pointer(r.at[i].Load())) }

// dead reports whether a bucket is no more.
func (r *Resolution) dead() bool {
	for _, e := range r.entries[:r.limits] {
		if e.Dead() {
			return true
		}
	}
	return false
}

// same reports whether two are of the same request and came to the same.
func (r *Resolution) same(other *Resolution) bool {
	return r.path == other.path && r.set == other.set && r.is == other.is && r.entries == other.entries
}
