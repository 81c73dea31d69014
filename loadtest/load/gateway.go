package load

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/handover"
	"github.com/f4ee788f/quota/pkg/client"
)

// behind is how late a gateway's requests may be. Requests that could not be made by then are dropped: the load is
// open, but no flood follows a stall.
const behind = 100_000 // microseconds

// decider is what a worker asks: a gateway, or a stand-in where the generator's own cost is measured.
type decider interface {
	Allow(ctx context.Context, attributes ...client.Attribute) client.Decision
}

// gateway is one client and the requests that come to it, a chunk at a time.
type gateway struct {
	client *client.Client

	// Requests come one after the other. While one waits for the server, another worker makes the next. No more than
	// one competes for the processor, which the gateways' own loops need as well.
	turn chan struct{} // holds it while nobody has it
	next float64       // when its next chunk is due, microseconds since the load began; guarded by turn, as is what follows
	each float64       // microseconds from a chunk to the next; 0 for as soon as one can
	n    int           // requests of a chunk
	from uint32        // the next chunk's place on the track

	// These are updated after each chunk, for observers.
	allowed, refused atomic.Int64
}

// newGateway returns a gateway with so many requests a second, 0 for as many as can be made. Its first chunk is due
// within a chunk's time after the load began, by turn.
func newGateway(c *client.Client, rate float64, turn float64, from uint32) *gateway {
	g := &gateway{client: c, turn: make(chan struct{}, 1), n: chunk, from: from}
	g.turn <- struct{}{}
	if rate > 0 {
		g.n = min(max(int(rate/100), 1), chunk)
		g.each = float64(g.n) * 1e6 / rate
		g.next = g.each * turn
	}
	return g
}

// claim returns the next chunk's place on the track, and when it is due. The caller has the turn.
func (g *gateway) claim(now int64, track []uint32) (from uint32, due int64) {
	from = g.from
	g.from = (from + uint32(g.n)) & uint32(len(track)-1)
	if g.each == 0 {
		return from, now
	}
	g.next = max(g.next, float64(now-behind))
	due = int64(g.next)
	g.next += g.each
	return from, due
}

// worker is a goroutine that asks. A gateway has several, so that a worker that waits for a lease does not hold up the
// gateway.
type worker struct {
	records  []record
	times    times
	requests *requests // nil before the first
	sampler  sampler
	away     bool  // it waited, and another worker of the gateway may have the turn
	left     int64 // when it began to, microseconds since the load began
}

// drive makes requests until ctx ends. A request that waits for the server is not cut short.
func (w *worker) drive(ctx context.Context, g *gateway, d decider, l *load) {
	asking := handover.BeforeWait(context.WithoutCancel(ctx), func() { w.wait(g, l) })
	for ctx.Err() == nil {
		<-g.turn
		w.away = false
		slept := w.chunk(ctx, asking, g, d, l)
		w.leave(g)
		if !slept {
			runtime.Gosched() // the gateways' own loops are on the same processors
		}
	}
}

// wait is told of a request that is going to wait for the server.
func (w *worker) wait(g *gateway, l *load) {
	if !w.away {
		w.left = l.now()
	}
	w.leave(g)
}

// leave lets the gateway's next worker ask, unless that was done.
func (w *worker) leave(g *gateway) {
	if !w.away {
		w.away = true
		g.turn <- struct{}{}
	}
}

// chunk makes the gateway's next requests, when they are due. It reports whether it waited until then.
func (w *worker) chunk(ctx, asking context.Context, g *gateway, d decider, l *load) (slept bool) {
	now := l.now()
	from, due := g.claim(now, l.track)
	if due > now {
		if !nap(ctx, time.Duration(due-now)*time.Microsecond) {
			return true
		}
		slept, now = true, l.now()
	}
	known := len(w.records)
	w.ask(asking, g, d, l, record{at: now, from: from}, g.n)
	for i := range w.records[known:] {
		r := &w.records[known+i]
		allowed := r.allowed()
		g.allowed.Add(allowed)
		g.refused.Add(int64(r.n) - allowed)
	}
	return slept
}

// ask makes a chunk's requests. While timing is on, it times some of them.
//
// A request that waits for the server ends the record, and gets a record of its own with the time of its answer.
// Otherwise the whole chunk would seem to have come spread over its waits.
func (w *worker) ask(ctx context.Context, g *gateway, d decider, l *load, r record, n int) {
	timed := -1
	if l.timing.Load() {
		timed = w.sampler.next(n)
	}
	if w.requests == nil {
		w.requests = newRequests(&l.Config)
	}
	first := r.from
	for i := range n {
		if i%ahead == 0 {
			w.requests.read(l.track, int(first)+i, min(n-i, ahead))
		}
		attributes := w.requests.of(i % ahead)
		var allowed bool
		if i == timed {
			begin := time.Now()
			allowed = d.Allow(ctx, attributes...).Allowed
			w.times.add(time.Since(begin))
			timed = w.sampler.after(i, n)
		} else {
			allowed = d.Allow(ctx, attributes...).Allowed
		}
		if w.away {
			w.keep(&r, w.left)
			r = record{at: l.now(), from: first + uint32(i)}
			r.add(allowed)
			w.keep(&r, r.at)
			<-g.turn
			w.away = false
			r = record{at: l.now(), from: first + uint32(i) + 1}
			continue
		}
		r.add(allowed)
	}
	w.keep(&r, l.now())
}

// keep keeps a record of requests until a moment, if it has any.
func (w *worker) keep(r *record, until int64) {
	if r.n > 0 {
		r.took = int32(min(max(until-r.at, 0), 1<<31-1))
		w.records = append(w.records, *r)
	}
}

// nap waits, and reports false when ctx ended first. Long waits look after ctx.
func nap(ctx context.Context, d time.Duration) bool {
	if d <= 20*time.Millisecond {
		time.Sleep(d)
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
