package agent

import (
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unique"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/reqcache"
	"github.com/f4ee788f/quota/internal/core/usage"
)

var (
	// ErrCrowded means that the registry, or who would hold the bucket, holds as many buckets or tenants as it may.
	ErrCrowded = errors.New("agent: too many buckets")
	// ErrGone means that the set is no longer in force, or the registry closed: match again.
	ErrGone = errors.New("agent: policy changed")
)

// Refusal is why a tenant's requests are denied without asking any limit.
type Refusal uint8

const (
	NotRefused Refusal = iota
	NoTenant           // the request names none, and no limit of the top level holds it
	NoPlan
	Suspended
	Switched // by an operator
	Capped   // the tenant, or an ancestor, has spent what it may
)

// Registry holds an agent's buckets and the tenants in use, and matches requests
// to them. Find and Entry take no lock; what changes something takes the
// mutex for a moment. Its owner alone calls what says so.
type Registry struct {
	seed    maphash.Seed
	max     int
	share   int  // see Share
	endless bool // limits of slots are left out
	tenants *table[Tenant]
	entries *table[Entry]

	known     *reqcache.Cache[Resolution]
	sweeping  atomic.Bool
	anonymous atomic.Pointer[Set] // for requests without a tenant
	mode      atomic.Uint32
	version   atomic.Int64
	buckets   atomic.Int64
	pins      pins

	mu      sync.Mutex
	rules   *limit.Rules
	trial   *limit.Rules // the shadow version; nil for none
	scopes  *table[Scope]
	kinds   map[kindKey]*kind             // of scopes that there are
	usual   map[*limit.Rule]*bucket.Terms // of rules as they are
	round   int64                         // of rebuilding
	denied  map[string]bool               // tenants switched off
	unasked []*Tenant                     // to be asked for; at most max
	pending map[*Tenant]struct{}          // tenants whose set waits for an answer
	shared  map[string]*shared            // by what makes the items
	rooted  map[*Tenant]int32             // buckets of the top level's limits whose usage is a tenant's, by tenant
	nested  bool                          // some tenant has, or had, a parent: which tenants are below one takes a look at all
	closed  bool
	journal *usage.Journal // nil without
	began   time.Time
}

// NewRegistry returns a registry that knows no policy yet and holds at most max
// buckets and as many tenants.
func NewRegistry(max int) *Registry {
	r := &Registry{
		seed: maphash.MakeSeed(), max: max, share: 100,
		scopes: newTable((*Scope).ownHash), kinds: make(map[kindKey]*kind), usual: make(map[*limit.Rule]*bucket.Terms), pending: make(map[*Tenant]struct{}), shared: make(map[string]*shared), rooted: make(map[*Tenant]int32),
	}
	r.tenants = newTable(func(t *Tenant) uint64 { return maphash.String(r.seed, t.id) })
	r.entries = newTable(func(e *Entry) uint64 { return r.hash(e.scope, e.values()) })
	r.known = reqcache.New[Resolution]()
	return r
}

// Keep has the buckets that feed the ledger count where a crash takes nothing. It is called before the first policy.
func (r *Registry) Keep(j *usage.Journal) { r.journal = j }

// CountFrom sets the zero of the clock that buckets are told. It is called before the first policy.
func (r *Registry) CountFrom(began time.Time) { r.began = began }

// Now is that clock: microseconds, never stepped.
func (r *Registry) Now() int64 { return time.Since(r.began).Microseconds() }

// LeaveOutSlots has the registry leave limits of slots out, for a program that cannot
// tell when a request ends. It is called before the first policy.
func (r *Registry) LeaveOutSlots() { r.endless = true }

// Set is every limit that holds a tenant's requests, in the order of asking:
// unmetered ones, strictest first, so that a denial is found early; then metered
// ones, so that the last asked is never put back; then slots, which a request may wait long
// for; at last those that only count. It is immutable: a change makes another.
type Set struct {
	List
	Refusal Refusal
	Slots   bool // some of Items are of slots
	Trying  bool // Trial is there
	gone    atomic.Bool
	first   [1]place // what places points to, where it is one

	Trial *Trial    // what is decided beside Items; nil for nothing
	Chain []string  // the tenant and its ancestors
	self  [1]string // what Chain is, of a tenant without any
	owner *Tenant   // the tenant; nil for none
	// plan is the tenant's, whose limits these are. With it the set has two cache lines, of which an ordinary decision reads the first.
	plan unique.Handle[string]
}

// List is limits as a tenant holds them. What they say is shared by all tenants of a plan,
// so that it stays in the processor's caches however many tenants there are.
type List struct {
	*shared
	places []place // by item: the tenant's
	hash   uint64  // the tenant's part of its own limits' scopes' hashes
}

// shared is what tenants with the same limits share.
type shared struct {
	Items []Item
	// matchers tell which of Items a request meets, limit.MatcherRules to each. None where
	// every request meets all.
	matchers []*limit.Matcher
}

// place is where a tenant's buckets of one limit are.
type place struct {
	scope *Scope
	// direct is the bucket last found, where no values tell several apart. A dropped
	// one stays until the next is made: its cell admits nothing.
	direct atomic.Pointer[Entry]
}

// Match returns which of the Items from first on, a multiple of limit.MatcherRules, the request
// meets: bit i stands for Items[first+i].
func (l *List) Match(first int, attributes []limit.Attribute) uint64 {
	if l.matchers == nil {
		if n := len(l.Items) - first; n < limit.MatcherRules {
			return 1<<n - 1
		}
		return 1<<limit.MatcherRules - 1
	}
	return l.matchers[first/limit.MatcherRules].Match(attributes)
}

// Trial is the limits that decide and count like any, and neither deny a request
// nor make it wait.
type Trial struct {
	Limits  List // shadow limits of the policy in force, each on its own
	Version List // the shadow version's, together: one that would deny takes nothing of the others
}

// Concerns reports whether a limit on trial holds the request.
func (t *Trial) Concerns(attributes []limit.Attribute) bool {
	return t != nil && (t.Limits.concerns(attributes) || t.Version.concerns(attributes))
}

func (l *List) concerns(attributes []limit.Attribute) bool {
	for first := 0; first < len(l.Items); first += limit.MatcherRules {
		if l.Match(first, attributes) != 0 {
			return true
		}
	}
	return false
}

// Place returns where in Items an item of the set is.
func (s *Set) Place(it *Item) int {
	at := 0
	for &s.Items[at] != it {
		at++
	}
	return at
}

// Gone reports whether another set has taken this one's place.
func (s *Set) Gone() bool { return s.gone.Load() }

// Held is an item of the set as its tenant has it, but for the meter.
func (s *Set) Held(it *Item) limit.Held { return s.places[s.Place(it)].scope.held() }

// Item is a limit of a Set.
type Item struct {
	// Rule is what it says. Tenants share it who have a rate and burst of their own: see Held.
	Rule *limit.Rule
	only *string // the one attribute that tells buckets apart, uncut; or nil
	hash uint64  // the part of its scopes' hashes that is no tenant's

	values uint16
	// Rank orders by strictness, strictest first, whatever the order of asking.
	Rank uint16
	// Metered: a meter is fed, this tenant's or, where Inherited, an ancestor's.
	Metered bool
	// Hold: units taken may yet be put back although they are billed, or are billed elsewhere, so they are announced.
	Hold bool
	// Inherited: the limit is an ancestor's and metered there; these units are not billed there.
	Inherited bool
	// Slots: units are slots, which the request gives back at its end.
	Slots bool
	// Queues: a request waits its turn.
	Queues bool
	// Vet: the limit's lists, or a reserve, may decide before the bucket does.
	Vet bool
	// Soft: what the bucket denies may be admitted above it.
	Soft  bool
	whose whose
}

// Values returns how many values tell the limit's buckets apart.
func (it *Item) Values() int { return int(it.values) }

// whose says which tenant a limit is held by.
type whose uint8

const (
	everyones whose = iota // the policy's top level
	own
	anAncestors
)

// find returns the tenant of that id, or nil.
func (r *Registry) find(id string) *Tenant {
	return r.tenants.find(maphash.String(r.seed, id), func(t *Tenant) bool { return t.id == id })
}

// Find returns what holds requests of the tenant, or nil while that is not known
// here; for an empty id, what holds requests without a tenant.
func (r *Registry) Find(id string) *Set {
	if id == "" {
		return r.anonymous.Load()
	}
	t := r.find(id)
	if t == nil {
		return nil
	}
	if !t.touched.Load() {
		t.touched.Store(true)
	}
	return t.set.Load()
}

// Lookup returns the first value of that name, empty when there is none.
func Lookup(attributes []limit.Attribute, name string) string {
	for i := range attributes {
		if attributes[i].Name == name {
			return attributes[i].Value
		}
	}
	return ""
}

// ownScopes calls f for the scopes of the set that are the tenant's own, not an ancestor's
// or the top level's, until it returns false.
func (s *Set) ownScopes(f func(*Scope) bool) {
	lists := [...]*List{&s.List, nil, nil}
	if s.Trial != nil {
		lists[1], lists[2] = &s.Trial.Limits, &s.Trial.Version
	}
	for _, l := range lists {
		if l == nil {
			return
		}
		for i := range l.places {
			if l.Items[i].whose != own {
				continue
			}
			sc := l.places[i].scope
			if !f(sc) || sc.beyond != nil && !f(sc.beyond) {
				return
			}
		}
	}
}

// Entry returns the request's bucket of item i, or nil when it is not held yet.
func (r *Registry) Entry(l *List, i int, attributes []limit.Attribute) *Entry {
	it := &l.Items[i]
	switch {
	case it.values == 0:
		return l.places[i].direct.Load()
	case it.only != nil:
		// What is found under the value as it came is right: entries have clean values only, and
		// addresses in one form.
		if e := r.entry(l, i, Lookup(attributes, *it.only)); e != nil {
			return e
		}
	}
	return r.entryOfMany(l, i, attributes)
}

func (r *Registry) entryOfMany(l *List, i int, attributes []limit.Attribute) *Entry {
	var buf [256]byte
	return r.entryBytes(l.places[i].scope, l.Items[i].append(buf[:0], attributes))
}

func (r *Registry) entry(l *List, i int, values string) *Entry {
	h := l.Items[i].hash
	switch l.Items[i].whose {
	case own:
		h ^= l.hash
	case anAncestors:
		h = l.places[i].scope.hash
	}
	return r.entryOf(l.places[i].scope, maphash.String(r.seed, values)^h, values)
}

// entryOf returns the scope's bucket of those values, whose hash that is; nil for none.
func (r *Registry) entryOf(s *Scope, hash uint64, values string) *Entry {
	return r.entries.find(hash, func(e *Entry) bool { return e.scope == s && e.values() == values })
}

func (r *Registry) entryBytes(s *Scope, values []byte) *Entry {
	return r.entryOf(s, maphash.Bytes(r.seed, values)^s.hash, unsafe.String(unsafe.SliceData(values), len(values)))
}

// hash is where a bucket of the scope is in the table.
func (r *Registry) hash(s *Scope, values string) uint64 {
	return maphash.String(r.seed, values) ^ s.hash
}

// append appends the request's values.
func (it *Item) append(dst []byte, attributes []limit.Attribute) []byte {
	for i := range int(it.values) {
		if i > 0 {
			dst = append(dst, valueSep...)
		}
		dst = it.Rule.AppendValue(dst, i, attributes)
	}
	return dst
}

// Touch returns the request's bucket of item i of one of the set's lists, and makes it if it is
// not held yet. It fails with ErrCrowded or ErrGone.
func (r *Registry) Touch(s *Set, l *List, i int, attributes []limit.Attribute, now int64) (*Entry, error) {
	var buf [256]byte
	it := &l.Items[i]
	values := it.append(buf[:0], attributes)
	e, err := r.touch(l.places[i].scope, values, now, func() bool { return !s.Gone() })
	if err == nil && it.values == 0 {
		l.places[i].direct.Store(e)
	}
	return e, err
}

// Beyond returns the bucket of what the limit of e admits above itself, for e's own
// values. It fails with ErrCrowded or ErrGone.
func (r *Registry) Beyond(e *Entry, now int64) (*Entry, error) {
	r.mu.Lock()
	s := e.scope.beyond
	r.mu.Unlock()
	if s == nil {
		return nil, ErrGone
	}
	return r.touch(s, []byte(e.values()), now, func() bool { return e.scope.beyond == s && !s.orphan && !e.scope.orphan })
}

// Above returns the bucket of what the limit of e admits above itself for e's own values; nil where there is none yet.
func (r *Registry) Above(e *Entry) *Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := e.scope.beyond
	switch {
	case s == nil:
		return nil
	case len(s.names) == 0:
		return s.direct.Load()
	}
	return r.entryBytes(s, []byte(e.values()))
}

// touch returns the scope's bucket of those values, and makes it if there is none, as long as holds, which is asked with the
// mutex held. A journal is told without it of what the bucket will feed: nobody waits there for another's disk.
func (r *Registry) touch(s *Scope, values []byte, now int64, holds func() bool) (*Entry, error) {
	for {
		m := making{scope: s, values: string(values), now: now}
		if r.journal != nil {
			if e, err := r.lookFor(&m, holds); e != nil || err != nil {
				return e, err
			}
			if m.feeds {
				m.at = r.journal.Mount(m.row, s.overage)
			}
		}
		e, made, err := r.insert(&m, holds)
		if m.at != nil && !made {
			r.journal.Release(m.at)
		}
		if made && m.feeds && m.at == nil && r.journal.Fault() == nil {
			r.missed(e)
		}
		if e != nil || err != nil {
			return e, err
		}
		// A change of the policy has it feed another row.
	}
}

// making is a bucket that is to be made.
type making struct {
	scope  *Scope
	values string
	now    int64
	row    ledger.Row // that it feeds
	feeds  bool       // it feeds one, and there is a journal
	at     *bucket.Cell
}

// lookFor returns the bucket if it is there, and else says which row it is to feed.
func (r *Registry) lookFor(m *making, holds func() bool) (*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, err := r.thereLocked(m, holds); e != nil || err != nil {
		return e, err
	}
	m.row, m.feeds = m.scope.row(m.values, 0)
	return nil, nil
}

// insert makes the bucket, unless it is there by now, or feeds another row.
func (r *Registry) insert(m *making, holds func() bool) (e *Entry, made bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, err := r.thereLocked(m, holds); e != nil || err != nil {
		return e, false, err
	}
	s := m.scope
	if r.journal != nil {
		if row, feeds := s.row(m.values, 0); feeds != m.feeds || row != m.row {
			return nil, false, nil
		}
	}
	e = newEntry(s, m.values, m.now, m.at, r.journal, r.entries.live >= aloneUpTo)
	r.entries.insert(r.hash(s, m.values), e)
	s.entries++
	r.root(e)
	if len(s.names) == 0 {
		s.direct.Store(e)
	}
	r.buckets.Store(int64(r.entries.live))
	return e, true, nil
}

// thereLocked returns the bucket if it is there, and why it cannot be made.
func (r *Registry) thereLocked(m *making, holds func() bool) (*Entry, error) {
	switch s := m.scope; {
	case r.closed || !holds():
		return nil, ErrGone
	case len(s.names) == 0 && s.direct.Load() != nil:
		return s.direct.Load(), nil
	case len(s.names) > 0:
		if e := r.entryBytes(s, []byte(m.values)); e != nil {
			return e, nil
		}
	}
	if r.entries.live >= r.max || r.crowds(m.scope, []byte(m.values)) {
		return nil, ErrCrowded
	}
	return nil, nil
}

// aloneUpTo is of how many buckets each has what requests touch in a cache line of its own.
const aloneUpTo = 1024

// missed counts a bucket that feeds the ledger and has no cell, once.
func (r *Registry) missed(e *Entry) {
	if e.marks.Or(missed)&missed == 0 {
		r.journal.Missed()
	}
}

// FollowJournal has the journal record what rows the buckets feed now, where the policy changed that. All usage up to the change
// was collected before. Buckets that feed the ledger from now on and have no cell go on without, and are
// counted: those that use one cannot be given another. The owner's.
func (r *Registry) FollowJournal() {
	r.journal.Follow(func(follow func(usage.Fed) bool) {
		r.Each(func(e *Entry) {
			row, feeds := e.Row(0)
			if !follow(usage.Fed{Cell: e.Cell(), Row: row, Feeds: feeds, Booked: e.Booked}) && feeds {
				r.missed(e)
			}
		})
	})
}

// Close makes Touch fail, so that there are no other buckets than those there now.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Learn returns the tenant of that id, known or not; fresh says that the owner
// has to be woken to ask for it. It fails with ErrCrowded.
func (r *Registry) Learn(id string) (t *Tenant, fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, fresh = r.learnLocked(id)
	if t == nil {
		return nil, false, ErrCrowded
	}
	return t, fresh, nil
}

func (r *Registry) learnLocked(id string) (t *Tenant, fresh bool) {
	if t := r.find(id); t != nil {
		t.touched.Store(true)
		if t.set.Load() == nil && !t.asking && !t.known {
			r.askLocked(t)
			return t, true
		}
		return t, false
	}
	if r.tenants.live >= r.max {
		return nil, false
	}
	t = newTenant(id)
	t.touched.Store(true)
	r.pending[t] = struct{}{}
	r.tenants.insert(maphash.String(r.seed, id), t)
	r.askLocked(t)
	return t, true
}

func (r *Registry) askLocked(t *Tenant) {
	if !t.asking {
		t.asking = true
		r.unasked = append(r.unasked, t)
	}
}

// Unasked takes up to n tenants that the server is to be asked for. The owner's.
func (r *Registry) Unasked(n int) []*Tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.unasked))
	if n == 0 {
		return nil
	}
	out := slices.Clone(r.unasked[:n])
	rest := copy(r.unasked, r.unasked[n:])
	clear(r.unasked[rest:])
	r.unasked = r.unasked[:rest]
	return out
}

// AskAgain puts tenants back whose question was not answered. The owner's.
func (r *Registry) AskAgain(tenants []*Tenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range tenants {
		t.asking = false
		r.askLocked(t)
	}
}

// Ask asks again for a tenant in use. The owner's.
func (r *Registry) Ask(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.find(id); t != nil {
		r.askLocked(t)
	}
}

// Refresh asks again for every tenant in use. The owner's.
func (r *Registry) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenants.each(r.askLocked)
}

// Mode returns the switch over all decisions.
func (r *Registry) Mode() limit.Mode { return limit.Mode(r.mode.Load()) }

// Version returns the version of the policy in force, 0 before the first.
func (r *Registry) Version() int64 { return r.version.Load() }

// Buckets returns how many buckets are held.
func (r *Registry) Buckets() int64 { return r.buckets.Load() }

// Tenants returns how many tenants are known.
func (r *Registry) Tenants() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants.live
}

// Each calls f for every bucket that there was when it began. The owner's; nobody
// waits for it meanwhile.
func (r *Registry) Each(f func(*Entry)) { r.entries.each(f) }

// holds reports whether there are buckets of the tenant's own limits.
func (s *Set) holds() bool {
	for sc := range s.ownScopes {
		if sc.entries > 0 {
			return true
		}
	}
	return false
}

// Sweep forgets requests and tenants that were not used between the last calls of it. A tenant that stays holds a bucket, or is an
// ancestor of one that is known. It takes as long as it takes, beside everything else: nobody waits for more than a small part of it. One
// that is under way is enough.
func (r *Registry) Sweep() {
	if !r.sweeping.CompareAndSwap(false, true) {
		return
	}
	defer r.sweeping.Store(false)
	r.sweepKnown()
	for i := range r.tenants.parts {
		r.sweepTenants(&r.tenants.parts[i])
	}
}

func (r *Registry) sweepTenants(part *part[Tenant]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	part.each(func(t *Tenant) {
		if t.touched.Load() || t.asking {
			t.idle = 0
			t.touched.Store(false)
		} else {
			t.idle = min(t.idle+1, forgotten)
		}
		s := t.set.Load()
		// Where buckets of the top level count its usage, its plan is wanted when they are booked.
		if t.idle == forgotten && (s == nil || !s.holds()) && r.rooted[t] == 0 && t.below == 0 {
			r.forgetTenant(t)
		}
	})
}

// forgetTenant takes a tenant out that holds no bucket. The mutex is held.
func (r *Registry) forgetTenant(t *Tenant) {
	if s := t.set.Load(); s != nil {
		r.hasBelow(s, -1)
		s.gone.Store(true)
		for sc := range s.ownScopes {
			r.forget(sc)
		}
	}
	delete(r.pending, t)
	r.tenants.remove(maphash.String(r.seed, t.id), t)
}

// hasBelow says that the set's ancestors have so many more, or fewer, sets below them. The mutex is held.
func (r *Registry) hasBelow(s *Set, n int32) {
	if len(s.Chain) == 0 {
		return
	}
	for _, id := range s.Chain[1:] {
		if t := r.find(id); t != nil {
			t.below += n
		}
	}
}

// SweepInvented forgets the tenants that the server does not know, used or not, once few have room: names are invented as
// easily as keys. The owner's.
func (r *Registry) SweepInvented() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants.live < r.max*15/16 {
		return
	}
	var invented []*Tenant
	r.tenants.each(func(t *Tenant) {
		s := t.set.Load()
		if t.known && !t.exists && !t.asking && r.rooted[t] == 0 && (s == nil || !s.holds()) {
			invented = append(invented, t)
		}
	})
	for _, t := range invented {
		r.forgetTenant(t)
	}
}
