package client

import (
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
)

// slotsInUse is the slots of concurrency limits that an allowed request has. Decision.Done gives them back, once.
type slotsInUse struct {
	c       *Client
	done    atomic.Bool
	buckets []slotsOf
}

// slotsOf is n slots of a bucket.
type slotsOf struct {
	entry *agent.Entry
	n     int64
}

// slots returns the slots that the request has; nil for none. A reservation gives its own back.
func (r *request) slots() (s *slotsInUse) {
	if !r.set.Slots || r.reserves != nil {
		return nil
	}
	for _, h := range r.claims {
		if h.item.Slots && h.n > 0 {
			if s == nil {
				s = &slotsInUse{c: r.c}
			}
			s.buckets = append(s.buckets, slotsOf{h.entry, h.n})
		}
	}
	return s
}

func (s *slotsInUse) giveBack() {
	if s.done.Swap(true) {
		return
	}
	for _, b := range s.buckets {
		s.c.finish(b.entry, b.n)
	}
}

// finish gives back n slots of a request that has ended.
func (c *Client) finish(e *agent.Entry, n int64) {
	bucket.Serve(e.Finish(n))
	c.spare(e)
}

// spare has the loop look at a bucket to which slots came back, if they are more than this client may keep.
func (c *Client) spare(e *agent.Entry) {
	if e.Surplus() {
		c.session.Attend(e)
	}
}
