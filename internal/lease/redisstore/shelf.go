package redisstore

import (
	"container/list"
	"strings"
	"sync"
	"unique"

	"github.com/f4ee788f/quota/internal/lease"
)

// The server that wrote a bucket last knows what is in it, and need not read it. The shelf has what it wrote, as Redis has it: the
// next step is executed on that, and counts only if the write finds the bucket as it was left, which is told by what no other write
// has. What is under way is not on the shelf, so that what may or may not have been written does not come back to it.

const (
	// shelfSize bounds what is kept, in bytes: 1.3 million leases of a hundred holders a bucket. What was used least lately goes first, and
	// is read when it comes again.
	shelfSize = 192 << 20
	// keptSize and recordSize are about what a bucket and a record take beside what they hold.
	keptSize, recordSize = 416, 48
	// doubts is how often in a row a bucket that another server wrote has to be found as it was left here, until it is taken to be so
	// without a read: a write that is refused costs more than the read that it was to save.
	doubts = 3
)

// kept is a bucket as this server left it.
type kept struct {
	key     string
	b       string                           // its state
	records map[unique.Handle[string]]string // those of holders that came here since
	doubts  int
	size    int
}

func newKept(key string, doubts int) *kept {
	return &kept{key: key, doubts: doubts, records: make(map[unique.Handle[string]]string, 1), size: keptSize + len(key)}
}

// has reports whether the records of all of these renewals are there.
func (k *kept) has(renewals []lease.Renewal, at []int) bool {
	for _, i := range at {
		if _, ok := k.records[unique.Make(renewals[i].Holder)]; !ok {
			return false
		}
	}
	return true
}

func (k *kept) leave(b string) {
	k.size += len(b) - len(k.b)
	k.b = b
}

func (k *kept) record(holder, value string) {
	h := unique.Make(holder)
	was, there := k.records[h]
	if !there {
		k.size += recordSize
	}
	k.size += len(value) - len(was)
	k.records[h] = value
}

func (k *kept) drop(holder string) {
	h := unique.Make(holder)
	if was, there := k.records[h]; there {
		k.size -= recordSize + len(was)
		delete(k.records, h)
	}
}

// state returns the bucket's state, as it was read or left.
func (v *visit) state() (b string, ok bool) {
	if v.known {
		return v.kept.b, true
	}
	b, ok = v.values[0].(string)
	return b, ok
}

// record returns the record of the holder of the k-th renewal.
func (v *visit) record(k int, holder string) (b string, ok bool) {
	if v.known {
		b, ok = v.kept.records[unique.Make(holder)]
		return b, ok
	}
	b, ok = v.values[1+k].(string)
	return b, ok
}

// compare tells what was read from what this server left.
func (v *visit) compare(was string) {
	switch {
	case v.kept == nil:
		v.kept = newKept(v.key, 0)
	case written(v.kept.b) != was:
		v.kept = newKept(v.key, doubts)
	case !v.known:
		v.kept.doubts = max(v.kept.doubts-1, 0)
	}
}

// keep leaves on the shelf what was written, and reports whether it can: logs are read each time.
func (v *visit) keep() bool {
	args := v.writes.Args()[6:]
	gone, args := args[1:1+args[0].(int)], args[1+args[0].(int):]
	for _, field := range gone {
		if holder, ok := strings.CutPrefix(field.(string), recordPrefix); ok {
			v.kept.drop(holder)
		}
	}
	for ; len(args) > 0; args = args[2:] {
		field, value := args[0].(string), string(args[1].([]byte))
		if field == logField {
			return false
		}
		if holder, ok := strings.CutPrefix(field, recordPrefix); ok {
			v.kept.record(holder, value)
		} else {
			v.kept.leave(value)
		}
	}
	return true
}

// shelf is safe for concurrent use.
type shelf struct {
	mu    sync.Mutex
	most  int
	size  int
	byKey map[string]*list.Element
	order *list.List // of *kept, the last to be used first
}

func newShelf(most int) *shelf {
	return &shelf{most: most, byKey: make(map[string]*list.Element), order: list.New()}
}

// take removes what is kept of a bucket, nil for nothing.
func (s *shelf) take(key string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(key)
}

func (s *shelf) takeLocked(key string) *kept {
	e := s.byKey[key]
	if e == nil {
		return nil
	}
	k := s.order.Remove(e).(*kept)
	delete(s.byKey, key)
	s.size -= k.size
	return k
}

// put keeps a bucket, in the place of what another call kept of it meanwhile: which of the two is the last nobody knows, and the write tells.
func (s *shelf) put(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeLocked(k.key)
	s.byKey[k.key] = s.order.PushFront(k)
	s.size += k.size
	for s.size > s.most {
		s.takeLocked(s.order.Back().Value.(*kept).key)
	}
}
