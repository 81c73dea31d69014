package sim

import "math/rand/v2"

// hop is one ideal limiter that every request asks over the network. That messages take their time is an error by
// itself where one request is a part of what ten seconds admit. So it is where a slot is free before anybody hears of
// it. hop tells how large that error is.
type hop struct {
	w          *world
	limiters   []any // by key, as measure has the ideal ones
	network    *rand.Rand
	when, came []int64 // admitted, by bin, as in course
}

func newHop(w *world, bins int) *hop {
	h := &hop{
		w: w, limiters: make([]any, w.sc.keys()), network: rand.New(rand.NewPCG(w.seed, 3)),
		when: make([]int64, bins), came: make([]int64, bins),
	}
	for i := range h.limiters {
		h.limiters[i] = newIdeal(&w.sc.Limit, w.sc.Agents, w.epoch)
	}
	return h
}

// ask sends a request to the limiter. It is admitted when the answer is back, and its slot is free when the
// limiter hears of its end.
func (h *hop) ask(r request) {
	h.w.after(h.oneWay(), func() {
		back := h.oneWay()
		at, ok := h.w.now, false
		switch l := h.limiters[r.key].(type) {
		case queueing:
			at, ok = l.begins(h.w.epoch+h.w.now, back+r.lasts+h.oneWay())
			at -= h.w.epoch
		case ideal:
			ok = l.take(h.w.epoch+h.w.now, r.units)
		}
		if ok {
			h.w.at(at+back, func() {
				h.when[h.w.now/bin] += r.units
				h.came[r.at/bin] += r.units
			})
		}
	})
}

func (h *hop) oneWay() int64 { return oneWay(h.network, h.w.sc.Faults.roundTrip()) }
