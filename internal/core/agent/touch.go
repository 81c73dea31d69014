package agent

import (
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// Touch returns the request's bucket of item i of one of the set's lists, and makes it if it is
// not held yet. It fails with ErrCrowded or ErrGone.
func (r *Registry) Touch(s *Set, l *List, i int, attributes []limit.Attribute, now int64) (*Entry, error) {
	var buf [256]byte
	key := string(l.Items[i].AppendKey(buf[:0], attributes))
	return r.touch(l.scopes[i], key, now, func() bool { return !s.Gone() })
}

// Beyond returns the bucket that counts the overage of e's limit, for e's own values. It makes the bucket if it is not
// held yet. It fails with ErrCrowded or ErrGone.
func (r *Registry) Beyond(e *Entry, now int64) (*Entry, error) {
	r.mu.Lock()
	s := e.scope.beyond
	r.mu.Unlock()
	if s == nil {
		return nil, ErrGone
	}
	return r.touch(s, e.values(), now, func() bool { return e.scope.beyond == s && !s.orphan() && !e.scope.orphan() })
}

// Above returns that bucket; nil where there is none yet.
func (r *Registry) Above(e *Entry) *Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.scope.beyond == nil {
		return nil
	}
	return r.entry(e.scope.beyond, e.values())
}

// making is a bucket that is to be made.
type making struct {
	scope *Scope
	key   string
	now   int64
	row   ledger.Row // that it feeds, where there is a journal; zero for none
	at    *bucket.Cell
	made  bool
}

// touch returns the scope's bucket of a key. If there is none, it makes it as long as holds, which is called with the
// mutex held. A journal is told without the mutex which row the bucket will feed: nobody waits there for another's
// disk.
func (r *Registry) touch(s *Scope, key string, now int64, holds func() bool) (*Entry, error) {
	m := making{scope: s, key: key, now: now}
	for {
		e, err := r.insert(&m, holds)
		if m.at != nil && !m.made {
			r.journal.Release(m.at)
			m.at = nil
		}
		if e != nil || err != nil {
			if m.made && m.row != (ledger.Row{}) && m.at == nil && r.journal.Fault() == nil {
				r.missed(e)
			}
			return e, err
		}
		if m.row != (ledger.Row{}) {
			m.at = r.journal.Mount(m.row, s.overage)
		}
	}
}

// insert returns the bucket, and makes it if it is not there. Where it feeds another row than m says, it only says which.
func (r *Registry) insert(m *making, holds func() bool) (*Entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := m.scope
	if r.closed || !holds() {
		return nil, ErrGone
	}
	if e := r.entry(s, m.key); e != nil {
		return e, nil
	}
	if r.entries.Len() >= r.max || r.crowds(s, m.key) {
		return nil, ErrCrowded
	}
	if r.journal != nil {
		row, feeds := s.row(m.key, 0)
		if !feeds {
			row = ledger.Row{}
		}
		if row != m.row {
			m.row = row
			return nil, nil
		}
	}
	agents := r.fleet.Load()
	if r.entries.Len() > r.max/2 {
		agents = 0 // buckets may make room for others soon: they would have credit again
	}
	e := newEntry(s, m.key, m.now, m.at, r.journal, r.entries.Len() >= aloneUpTo, agents)
	m.made = true
	r.entries.Insert(r.hash(s, m.key), e)
	s.entries++
	r.root(e)
	if len(s.names) == 0 {
		s.direct.Store(e)
	}
	r.buckets.Store(int64(r.entries.Len()))
	return e, nil
}

// aloneUpTo is how many buckets have a cache line of their own for what requests touch.
const aloneUpTo = 1024

// Drop takes a bucket out that holds nothing, and reports whether it did. A
// request that still has it in hand matches again. collect is called when nothing
// more can be admitted by it, for the last of its usage. The owner's.
func (r *Registry) Drop(e *Entry, collect func(*Entry)) bool {
	counting := e.scope.now.Load().Counting()
	if !counting {
		if live := e.State(0).Live; live || e.Flying {
			return false
		}
		e.Drain()
	}
	if e.inUse() || !e.Empty() {
		return false
	}
	e.mark(dead, true)
	if e.inUse() || !e.Empty() {
		e.mark(dead, false)
		return false
	}
	if counting {
		e.Drain()
	}
	e.Reopen()
	r.mu.Lock()
	r.entries.Remove(r.hash(e.scope, e.values()), e)
	r.unroot(e)
	r.buckets.Store(int64(r.entries.Len()))
	s := e.scope
	if s.direct.Load() == e {
		s.direct.Store(nil)
	}
	if s.entries--; s.entries == 0 && s.orphan() {
		r.forget(s)
	}
	r.mu.Unlock()
	collect(e)
	return true
}

// missed counts a bucket that feeds the ledger and has no cell, once.
func (r *Registry) missed(e *Entry) {
	if e.marks.Or(missed)&missed == 0 {
		r.journal.Missed()
	}
}

// FollowJournal has the journal record what rows the buckets feed now, where the policy changed that. All usage up to the
// change was collected before. A bucket in use cannot be given a cell: one that begins to feed the ledger goes on without,
// and is counted. The owner's.
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
