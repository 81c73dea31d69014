package sim

import (
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// store keeps the buckets and runs the production step on them, one renewal after the other. It adds faults, and shows
// how many tokens are out.
type store struct {
	w       *world
	buckets map[bucketID]*stored
	order   []*stored // so that whoever looks at all of them sees one order

	forgotten int64 // tokens that were out when their bucket was forgotten
}

type bucketID struct{ key, agent int }

type stored struct {
	id    bucketID
	state *lease.State
}

// renew answers one renewal of the holder for the bucket.
func (s *store) renew(id bucketID, holder string, r lease.Renewal) lease.Answer {
	server := s.w.epoch + s.w.now
	r.Key, r.Holder, r.Now, r.Spec = "bucket", holder, server, s.w.sc.spec(server)
	if clock := s.w.sc.Faults.Clock; clock != nil {
		r.Now += clock(s.w.now)
	}
	for _, f := range s.w.sc.Faults.Forgets {
		if !s.w.sc.Faults.Untold && s.w.now >= f.At+noticed && (f.Keys == nil || f.Keys(id.key)) {
			r.Memory = lease.Memory{Since: s.w.epoch + f.At + noticed, Lost: !f.Anew && s.w.now < f.At+noticed+lease.LongTerm}
		}
	}
	if err := r.Check(); err != nil {
		return lease.Answer{Err: err}
	}
	if !s.w.sc.Unguarded {
		id.agent = 0
	}
	b := s.buckets[id]
	if b == nil {
		b = &stored{id: id, state: new(lease.State)}
		s.buckets[id] = b
		s.order = append(s.order, b)
	}
	b.state.Sweep(r.Now)
	g, err := b.state.Renew(r.Now, &r)
	return lease.Answer{Grant: g, Err: err}
}

// forget drops the buckets for which keys holds.
func (s *store) forget(keys func(int) bool) {
	for _, b := range s.order {
		if keys == nil || keys(b.id.key) {
			s.forgotten += (b.state.Out.Stock + b.state.Out.Pile) / limit.Micro
			b.state = new(lease.State)
		}
	}
}

// out is how many tokens agents may hold now, all buckets together.
func (s *store) out() int64 {
	var n int64
	for _, b := range s.order {
		n += b.state.Out.Stock + b.state.Out.Pile
	}
	return n / limit.Micro
}

// spec is the scenario's limit as a server hands it to the store at now.
func (sc *Scenario) spec(now int64) lease.Spec {
	l := &sc.Limit
	s := lease.Spec{
		Algorithm: l.Algorithm, Units: l.Rate.Units, Period: l.Rate.Per.Microseconds(), Burst: l.Burst,
		EpsilonPPM: l.EpsilonPPM, Borrow: l.Borrow, Lockout: l.Lockout.Microseconds(), Hold: l.FallbackHold.Microseconds(),
	}
	if l.Slots > 0 {
		s.Units = l.Slots
	}
	if l.Algorithm.Windowed() {
		s.WindowStart, s.WindowEnd = windowAt(l.Rate, now)
		_, s.NextWindowEnd = windowAt(l.Rate, s.WindowEnd)
	}
	return s
}
