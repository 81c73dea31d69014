package likely

import (
	"strings"
	"sync"
)

// Bounds of what a Table knows, some 1 MiB in all. A tenant with TenantKeys forgets the one that it did not use for
// longest. So whoever invents values has only his own learned anew. With MaxKeys in all, the one that nobody used for
// longest is forgotten.
const (
	MaxKeys    = 1024
	TenantKeys = 32
)

// Key is what a sketch is of. No tenant's requests say what another's cost.
type Key struct {
	Tenant string
	Cost   string
	Value  string // of the attribute that tells requests apart; bounded by whoever makes the key
}

// Table knows what requests turned out to cost, by key. The zero Table knows nothing. It is safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	of    map[string]map[Key]*used // by tenant; each has at least one
	keys  int                      // in all of them
	clock uint64                   // counts uses
}

type used struct {
	sketch
	at uint64 // Table.clock when it was used last
}

// Observe says what a request turned out to cost; less than 0 counts as 0, and more than Largest as that.
func (t *Table) Observe(k Key, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[k.Tenant][k]
	if s == nil {
		k = Key{strings.Clone(k.Tenant), strings.Clone(k.Cost), strings.Clone(k.Value)}
		s = t.roomLocked(k.Tenant)
		t.of[k.Tenant][k] = s
		t.keys++
	}
	t.useLocked(s)
	s.observe(min(max(n, 0), Largest))
}

// ObserveLeast says that a request was ended where it had cost n: left alone, it would have cost that or more. It counts
// as n where that is not below what so many millionths cost at most. Below, and while too few are known, it says nothing:
// it may be of either side.
func (t *Table) ObserveLeast(k Key, ppm, n int64) {
	if q, ok := t.Quantile(k, ppm); ok && bucketOf(min(max(n, 0), Largest)) >= bucketOf(q) {
		t.Observe(k, n)
	}
}

// Quantile returns the units that so many millionths of all requests do not exceed, at most an eighth too many. It is
// false while too few requests are known.
func (t *Table) Quantile(k Key, ppm int64) (n int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[k.Tenant][k]
	if s == nil {
		return 0, false
	}
	t.useLocked(s)
	return s.quantile(ppm)
}

func (t *Table) useLocked(s *used) {
	t.clock++
	s.at = t.clock
}

// roomLocked returns an empty sketch for a tenant, where need be one that it or nobody used for longest.
func (t *Table) roomLocked(tenant string) *used {
	s := new(used)
	switch {
	case len(t.of[tenant]) >= TenantKeys:
		s = t.forgetLocked(t.of[tenant])
	case t.keys >= MaxKeys:
		every := make([]map[Key]*used, 0, len(t.of))
		for _, of := range t.of {
			every = append(every, of)
		}
		s = t.forgetLocked(every...)
	}
	if t.of == nil {
		t.of = make(map[string]map[Key]*used)
	}
	if t.of[tenant] == nil {
		t.of[tenant] = make(map[Key]*used)
	}
	return s
}

// forgetLocked takes out the sketch that was not used for longest, and empties it.
func (t *Table) forgetLocked(among ...map[Key]*used) *used {
	var oldest Key
	least := t.clock + 1
	for _, of := range among {
		for k, s := range of {
			if s.at < least {
				oldest, least = k, s.at
			}
		}
	}
	of := t.of[oldest.Tenant]
	s := of[oldest]
	delete(of, oldest)
	if len(of) == 0 {
		delete(t.of, oldest.Tenant)
	}
	t.keys--
	*s = used{}
	return s
}
