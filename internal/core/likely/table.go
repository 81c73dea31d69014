package likely

import (
	"strings"
	"sync"
)

// MaxKeys bounds the keys that a Table knows, some 256 KiB in all. Beyond it the one not used for longest is forgotten,
// so that whoever invents values makes others be learned anew, and no more.
const MaxKeys = 256

// Key is what a sketch is of.
type Key struct {
	Cost  string
	Value string // of the attribute that tells requests apart; bounded by whoever makes the key
}

// Table knows what requests turned out to cost, by key. The zero Table knows nothing. It is safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	of    map[Key]*used
	clock uint64 // counts uses
}

type used struct {
	sketch
	at uint64 // Table.clock when it was used last
}

// Observe says what a request turned out to cost; less than 0 counts as 0, and more than Largest as that.
func (t *Table) Observe(k Key, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[k]
	if s == nil {
		s = t.roomLocked()
		t.of[Key{strings.Clone(k.Cost), strings.Clone(k.Value)}] = s
	}
	t.useLocked(s)
	s.observe(min(max(n, 0), Largest))
}

// Quantile returns the units that so many millionths of all requests do not exceed, at most an eighth too many. It is
// false while too few requests are known.
func (t *Table) Quantile(k Key, ppm int64) (n int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[k]
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

// roomLocked returns an empty sketch, where need be the one not used for longest.
func (t *Table) roomLocked() *used {
	if t.of == nil {
		t.of = make(map[Key]*used)
	}
	if len(t.of) < MaxKeys {
		return new(used)
	}
	var oldest Key
	least := t.clock + 1
	for k, s := range t.of {
		if s.at < least {
			oldest, least = k, s.at
		}
	}
	s := t.of[oldest]
	delete(t.of, oldest)
	*s = used{}
	return s
}
