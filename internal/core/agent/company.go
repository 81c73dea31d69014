package agent

// Company is buckets that allowed a request together, as many as a decision tells of. It is immutable.
type Company struct {
	Item   *Item  // of the strictest limit
	Entry  *Entry // its bucket
	Others [3]*Entry
}

// With returns the company, the same one for as long as the bucket is in no other: so that requests which are not
// remembered, and meet the same buckets again and again, do not allocate one each. The bucket is best one that few
// requests share.
func (e *Entry) With(c Company) *Company {
	s := e.seldom()
	if s != nil {
		if was := s.company.Load(); was != nil && *was == c {
			return was
		}
	}
	next := &Company{c.Item, c.Entry, c.Others} // not c, which would then be allocated for every call
	if s != nil {
		s.company.Store(next) // which may be given up, and then it is told again
		return next
	}
	b := e.open(new(hand))
	defer b.close()
	b.rarely().company.Store(next)
	return next
}

// Disband has the bucket forget a company of which a bucket is no more, so that it does not keep that, and what a journal
// has of it.
func (e *Entry) Disband() {
	s := e.seldom()
	if s == nil || s.company.Load() == nil {
		return
	}
	c := s.company.Load()
	gone := c.Entry.Dead()
	for _, o := range c.Others {
		gone = gone || o != nil && o.Dead()
	}
	if gone {
		s.company.CompareAndSwap(c, nil)
	}
}
