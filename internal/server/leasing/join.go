package leasing

import (
	"context"
	"fmt"
	"sync"

	"github.com/f4ee788f/quota/internal/core/lease"
)

const (
	// joinWidth is how many batches are under way at once: one is answered while the next is on its way. More batches
	// would be smaller, while a trip to a node costs the node and this server the same for any batch.
	joinWidth = 2
	// joinBatch is the most renewals of a batch, and joinWaiting the most that wait. Beyond that they are answered
	// unavailable, and their agents come again.
	joinBatch   = 1_000
	joinWaiting = 64_000
)

// Watched is a lease store that notices when it forgets.
type Watched interface {
	Run(ctx context.Context, tell func(lease.Loss), forgotBefore func(int64)) error
}

// Joiner joins the renewals of concurrent calls into batches, for a store across the network. All waiting renewals of
// one bucket go together, in their order. Those that come while the bucket is under way go when it is back. So a
// hundred gateways that come to a bucket at once cost the store two visits, and two visits never collide. While nothing
// is under way a call goes out at once, alone.
type Joiner struct {
	store lease.Store

	mu      sync.Mutex
	lines   map[string]*line // by bucket, of all with renewals waiting or under way
	ready   []*line          // that have some waiting and none under way, as they came
	queued  int              // renewals that wait
	free    int              // batches that may be begun
	running sync.WaitGroup
}

// line is the renewals of one bucket that wait.
type line struct {
	waiting []place
	away    bool // some are under way
}

// place is a renewal of a call.
type place struct {
	call *joined
	at   int
}

// joined is the renewals of one call.
type joined struct {
	renewals []lease.Renewal
	answers  []lease.Answer
	done     chan struct{}

	// The joiner's lock guards these.
	left int  // that are not answered yet
	gone bool // nobody waits for the answers
}

// NewJoiner returns a joiner in front of store.
func NewJoiner(store lease.Store) *Joiner {
	return &Joiner{store: store, lines: make(map[string]*line), free: joinWidth}
}

// Renew implements lease.Store. When ctx ends first, renewals that were sent may still be executed. Their numbers make
// that harmless.
func (j *Joiner) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	if len(renewals) == 0 {
		return nil
	}
	c := &joined{renewals: renewals, answers: make([]lease.Answer, len(renewals)), left: len(renewals), done: make(chan struct{})}
	if !j.enqueue(c) {
		return unavailable(len(renewals), fmt.Errorf("%w: too many renewals wait for the store", lease.ErrUnavailable))
	}
	select {
	case <-c.done:
		return c.answers
	case <-ctx.Done():
		j.mu.Lock()
		c.gone = true
		j.mu.Unlock()
		return unavailable(len(renewals), fmt.Errorf("%w: %w", lease.ErrUnavailable, ctx.Err()))
	}
}

func unavailable(n int, err error) []lease.Answer {
	answers := make([]lease.Answer, n)
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// Ping is the store's, where it has one.
func (j *Joiner) Ping(ctx context.Context) error {
	if p, ok := j.store.(interface{ Ping(context.Context) error }); ok {
		return p.Ping(ctx)
	}
	return nil
}

// Run is the store's, where it has one.
func (j *Joiner) Run(ctx context.Context, tell func(lease.Loss), forgotBefore func(int64)) error {
	if w, ok := j.store.(Watched); ok {
		return w.Run(ctx, tell, forgotBefore)
	}
	return nil
}

// Close waits for what is under way; no call may come afterwards. The store stays open.
func (j *Joiner) Close() error {
	j.running.Wait()
	return nil
}

func (j *Joiner) enqueue(c *joined) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.queued+len(c.renewals) > joinWaiting {
		return false
	}
	j.queued += len(c.renewals)
	for i := range c.renewals {
		key := c.renewals[i].Key
		l := j.lines[key]
		if l == nil {
			l = new(line)
			j.lines[key] = l
		}
		l.waiting = append(l.waiting, place{c, i})
		if len(l.waiting) == 1 && !l.away {
			j.ready = append(j.ready, l)
		}
	}
	if j.free > 0 && len(j.ready) > 0 {
		j.free--
		j.running.Go(j.drain)
	}
	return true
}

// drain sends batches until none is ready.
func (j *Joiner) drain() {
	for {
		places := j.take()
		if places == nil {
			return
		}
		j.send(places)
	}
}

// take removes the next batch, or gives the turn back. Renewals whose callers left are not sent. After a store has
// hung, it might not answer all of them within the time that the others have.
func (j *Joiner) take() []place {
	j.mu.Lock()
	defer j.mu.Unlock()
	places, n := make([]place, 0, min(j.queued, joinBatch)), 0
	for _, l := range j.ready {
		before, seen := len(places), 0
		if before == joinBatch {
			break
		}
		n++
		key := l.waiting[0].call.renewals[l.waiting[0].at].Key
		for ; seen < len(l.waiting) && len(places) < joinBatch; seen++ {
			if p := l.waiting[seen]; !p.call.gone {
				places = append(places, p)
			}
		}
		j.queued -= seen
		rest := copy(l.waiting, l.waiting[seen:])
		clear(l.waiting[rest:])
		l.waiting = l.waiting[:rest]
		if l.away = len(places) > before; !l.away {
			delete(j.lines, key)
		}
	}
	rest := copy(j.ready, j.ready[n:])
	clear(j.ready[rest:])
	j.ready = j.ready[:rest]
	if len(places) == 0 {
		j.free++
		return nil
	}
	return places
}

// send is not bound to any caller's context: a caller that gives up must not undo its neighbours.
func (j *Joiner) send(places []place) {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	renewals := make([]lease.Renewal, len(places)) // the store fills in what it remembers; the callers' stay as they are
	for i, p := range places {
		renewals[i] = p.call.renewals[p.at]
	}
	answers := j.store.Renew(ctx, renewals)
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, p := range places {
		p.call.answers[p.at] = answers[i]
		if p.call.left--; p.call.left == 0 {
			close(p.call.done)
		}
		j.back(renewals[i].Key)
	}
}

// back makes a bucket ready after its renewals came back, or forgets it where none wait.
func (j *Joiner) back(key string) {
	switch l := j.lines[key]; {
	case l == nil || !l.away: // another of its renewals said so
	case len(l.waiting) == 0:
		delete(j.lines, key)
	default:
		l.away = false
		j.ready = append(j.ready, l)
	}
}
