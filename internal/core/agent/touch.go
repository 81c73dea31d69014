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
