package sim

import (
	"fmt"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/lease/relay"
)

// storeTrip is a server's round trip to the store, on average.
const storeTrip = millisecond

// server is one that relays: it holds one lease of each bucket for all its gateways.
type server struct {
	w       *world
	place   int
	name    string
	lives   int64
	buckets map[int]*relayed
}

type relayed struct {
	bucket *relay.Bucket
	waits  []func(waited bool) bool // renewals that wait for the store
	late   int                      // how many of them, the last, came while it was asked for a first lease
}

func newServer(w *world, place int) *server {
	s := &server{w: w, place: place}
	s.crash()
	return s
}

// crash ends the process without a word, and starts another, which knows nothing.
func (s *server) crash() {
	s.lives++
	s.name = fmt.Sprintf("server-%d/%d", s.place, s.lives)
	s.buckets = make(map[int]*relayed)
}

func (s *server) now() int64 { return s.w.epoch + s.w.now }

// renew answers a gateway's renewal, now or when the store has answered; never, if the server crashes first.
func (s *server) renew(key int, holder string, r lease.Renewal, answer func(lease.Answer)) {
	r.Key, r.Holder, r.Spec = "bucket", holder, s.w.sc.spec(s.now())
	if !relay.Eligible(&r.Spec) {
		relay.Strange(&r)
		name := s.name
		s.trip(func() {
			a := s.w.store.renew(bucketID{key: key}, holder, r)
			s.trip(func() {
				if s.name == name {
					answer(a)
				}
			})
		})
		return
	}
	h := s.buckets[key]
	if h == nil {
		h = &relayed{bucket: relay.NewBucket("bucket", s.name, int64(s.place)<<40|s.lives<<32|int64(key)<<8)}
		s.buckets[key] = h
	}
	try := func(waited bool) bool {
		a, ok := h.bucket.Renew(s.now(), &r, waited)
		if ok {
			answer(a)
		}
		return ok
	}
	late := h.bucket.Cold()
	if !try(false) {
		h.waits = append(h.waits, try)
		if late {
			h.late++
		}
	}
	s.ask(key, h)
}

// ask sends the bucket's own renewal to the store when it is due.
func (s *server) ask(key int, h *relayed) {
	if !h.bucket.Due(s.now()) {
		return
	}
	r, name := h.bucket.Ask(s.now()), s.name
	s.w.m.relayed++
	s.trip(func() {
		a := s.w.store.renew(bucketID{key: key}, name, r)
		s.trip(func() {
			if s.name != name {
				return
			}
			h.bucket.Answered(s.now(), a)
			waits, early := h.waits, len(h.waits)-h.late
			h.waits, h.late = nil, 0
			for i, try := range waits {
				if !try(i < early) {
					h.waits = append(h.waits, try)
				}
			}
			h.bucket.Settled()
			s.ask(key, h)
		})
	})
}

func (s *server) trip(do func()) { s.w.after(oneWay(s.w.network, storeTrip), do) }

// answer has the server of a place answer a call, or the store itself where no server relays.
func (w *world) answer(place int, holder string, batch []*line, renewals []lease.Renewal, answered func([]lease.Answer)) {
	answers := make([]lease.Answer, len(batch))
	if len(w.servers) == 0 {
		for i, l := range batch {
			answers[i] = w.store.renew(bucketID{l.key, place}, holder, renewals[i])
		}
		answered(answers)
		return
	}
	s := w.servers[place%len(w.servers)]
	if every := w.sc.Faults.Moves; every > 0 {
		s = w.servers[(place+int(w.now/every))%len(w.servers)]
	}
	left := len(batch)
	for i, l := range batch {
		s.renew(l.key, holder, renewals[i], func(a lease.Answer) {
			answers[i] = a
			if left--; left == 0 {
				answered(answers)
			}
		})
	}
}
