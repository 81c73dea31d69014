package relay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// world is some relays over one bucket of a store, and gateways that spend what they were granted and no more: they move
// between relays, crash, lose answers and repeat renewals. Relays crash; their calls take their time, are lost on
// either way, or find the store away. The limit changes.
type world struct {
	rng      *rand.Rand
	now      int64
	spec     lease.Spec
	upstream lease.State
	down     int64 // the store is away until then
	servers  []*server
	gateways []*gateway
	still    bool // a gateway spends nothing while its renewal is under way
	unkept   bool // the control: the store is not told what is out

	owed     float64 // what was admitted and the rate has not brought since
	lenient  int64   // until then the limit was another
	admitted int64
	broken   string
	asks     int
	renewals int
}

type server struct {
	bucket *Bucket
	name   string
	answer *lease.Answer // on its way, or nil
	at     int64
	queue  []func(bool) bool
	late   int // of the queue, the last: those that came while the store was asked for a first lease
}

type gateway struct {
	name     string
	server   int
	number   int64
	began    int64
	admitted int64
	denied   int64
	told     int64
	grant    lease.Grant
	waited   int64
	tokens   int64
	fraction float64
	last     int64
	expires  int64
	deny     int64
	load     float64 // units each millisecond
	flying   bool
}

// trip is the longest way to the store and back, in milliseconds.
const trip = 8

const start = int64(1_760_000_400_000_000)

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 5)), now: start, still: seed%2 == 0}
	pick := func(v ...int64) int64 { return v[w.rng.IntN(len(v))] }
	w.spec = lease.Spec{Algorithm: limit.TokenBucket, Units: pick(20, 100, 1000, 20_000), Period: 1_000_000, EpsilonPPM: pick(10_000, 50_000)}
	w.spec.Burst = w.spec.Units * pick(1, 2, 4) / 2
	for i := range 1 + w.rng.IntN(3) {
		w.servers = append(w.servers, w.newServer(i))
	}
	n := 1 + w.rng.IntN(12)
	for i := range n {
		w.gateways = append(w.gateways, &gateway{name: fmt.Sprint("agent-", i), server: w.rng.IntN(len(w.servers))})
	}
	w.shift()
	return w
}

func (w *world) newServer(i int) *server {
	name := fmt.Sprint("server-", i, "/", w.rng.Uint32())
	return &server{name: name, bucket: NewBucket("bucket", name, w.rng.Int64N(issued))}
}

func (w *world) shift() {
	load := float64(w.spec.Units) / 1000 * []float64{0.3, 0.9, 1.1, 3}[w.rng.IntN(4)]
	sum := 0.0
	for _, g := range w.gateways {
		g.load = w.rng.ExpFloat64()
		sum += g.load
	}
	for _, g := range w.gateways {
		g.load *= load / sum
	}
}

// step is a millisecond.
func (w *world) step(faults bool) {
	w.now += 1000
	w.owed = max(w.owed-float64(w.spec.Units)/1000, 0)
	if w.rng.IntN(2000) == 0 {
		w.shift()
	}
	if faults {
		w.fault()
	}
	for _, s := range w.servers {
		w.land(s)
	}
	for _, g := range w.gateways {
		w.arrive(g)
	}
}

func (w *world) fault() {
	switch w.rng.IntN(3000) {
	case 0:
		i := w.rng.IntN(len(w.servers))
		for _, g := range w.gateways {
			if g.server == i {
				g.flying = false
			}
		}
		w.servers[i] = w.newServer(i) // it crashed
	case 1:
		w.down = w.now + w.rng.Int64N(3_000_000)
	case 2:
		i := w.rng.IntN(len(w.gateways))
		g := w.gateways[i]
		w.gateways[i] = &gateway{name: g.name + "+", server: g.server, load: g.load}
	case 3:
		// A lower limit is held to once the leases of the old one end.
		w.spec.Units = max(w.spec.Units*(1+w.rng.Int64N(8))/4, 20)
		w.spec.Burst = w.spec.Units
		w.lenient = w.now + 3*lease.LongTerm
	}
}

// arrive lets requests come to a gateway.
func (w *world) arrive(g *gateway) {
	if g.flying && w.still {
		g.last = w.now
		return
	}
	w.refill(g)
	want := int64(g.load + w.rng.Float64())
	waiting := int64(0)
	for range want {
		switch {
		case g.tokens > 0:
			w.admit(g, 1)
		case w.now < g.deny || g.flying:
			g.denied++
		default:
			waiting++
		}
	}
	if g.flying {
		return
	}
	if waiting > 0 || g.grant.Number > 0 && w.now > g.expires-g.grant.TTL/20 && w.now < g.expires || w.rng.IntN(1000) == 0 {
		w.renew(g, waiting)
	}
}

func (w *world) admit(g *gateway, n int64) {
	g.tokens -= n
	g.admitted += n
	w.admitted += n
	w.owed += float64(n)
	slack := float64(w.spec.Units+w.spec.Burst) * float64(w.spec.EpsilonPPM) / 2e6
	// Fractions of a token may lie at each, and time goes on by a millisecond at once. What a gateway spends while its
	// renewal waits is beyond half of epsilon, relay or not.
	most := float64(w.spec.Burst) + slack + float64(len(w.gateways)+len(w.servers)) + float64(w.spec.Units)/1000
	if !w.still {
		most += float64(w.spec.Units) / 1000 * trip
	}
	if w.now < w.lenient {
		w.owed = min(w.owed, float64(w.spec.Burst))
	} else if w.owed > most && w.broken == "" {
		w.broken = fmt.Sprintf("%.1f admitted beyond the rate at %.3f s, the most is %.1f", w.owed, float64(w.now-start)/1e6, most)
	}
}

func (w *world) refill(g *gateway) {
	until := min(w.now, g.expires)
	if until > g.last && g.grant.Trickle > 0 {
		gained := float64(until-g.last)*float64(g.grant.Trickle)/1e12 + g.fraction
		room := g.grant.Pile + max(g.grant.Tokens-g.waited, 0)
		g.tokens = max(g.tokens, min(g.tokens+int64(gained), room))
		g.fraction = gained - float64(int64(gained))
	}
	g.last = max(g.last, until)
	if w.now >= g.expires {
		g.tokens, g.grant.Trickle, g.fraction = 0, 0, 0
	}
}

func (w *world) renew(g *gateway, waiting int64) {
	w.renewals++
	if w.rng.IntN(400) == 0 {
		g.server = w.rng.IntN(len(w.servers))
	}
	if g.number == 0 {
		g.number, g.began = w.now, w.now+1
	}
	g.number++
	r := lease.Renewal{
		Key: "bucket", Spec: w.spec, Holder: g.name, Now: w.now, Number: g.number, Began: g.began, Admitted: g.admitted, Denied: g.denied, Told: g.told,
		Held: g.tokens, Waiting: waiting, Largest: min(waiting, 1), Trickle: g.grant.Trickle, ExpiresIn: max(g.expires-w.now, 0), Generation: g.grant.Generation,
		Final: waiting == 0 && w.rng.IntN(50) == 0,
	}
	sentAt, tokens := w.now, g.tokens
	g.flying = true
	lost := w.rng.IntN(50) == 0
	take := func(a lease.Answer) {
		g.flying = false
		if w.still {
			g.last = w.now
		}
		w.refill(g)
		if lost || a.Err != nil || a.Grant.Number != r.Number {
			g.denied += waiting
			g.deny = w.now + 20_000
			return
		}
		g.told = r.Admitted
		if r.Final {
			g.tokens, g.grant, g.expires = 0, lease.Grant{}, 0
			return
		}
		spent := tokens - g.tokens // meanwhile, or what trickled
		g.grant, g.waited = a.Grant, waiting
		g.tokens, g.fraction = a.Grant.Tokens-max(spent, 0), 0
		g.last, g.expires, g.deny = w.now, sentAt+a.Grant.TTL, w.now+a.Grant.DenyFor
		for range min(waiting, g.tokens) {
			w.admit(g, 1)
			waiting--
		}
		g.denied += waiting
	}
	s := w.servers[g.server]
	if w.rng.IntN(40) == 0 && w.rng.IntN(2) == 0 {
		w.deliver(w.servers[w.rng.IntN(len(w.servers))], r, func(lease.Answer) {}) // the same number, somewhere else
	}
	if w.rng.IntN(40) == 0 {
		w.deliver(s, r, func(lease.Answer) {})
	}
	if r.Final { // an agent that gives back takes it out of its cell first
		tokens, g.tokens, g.expires = 0, 0, w.now
	}
	w.deliver(s, r, take)
}

// deliver brings a renewal to a server, where it may wait.
func (w *world) deliver(s *server, r lease.Renewal, take func(lease.Answer)) {
	try := func(waited bool) bool {
		a, ok := s.bucket.Renew(w.now, &r, waited)
		if ok {
			take(a)
		}
		return ok
	}
	late := s.bucket.Cold()
	if !try(false) {
		s.queue = append(s.queue, try)
		if late {
			s.late++
		}
	}
	w.send(s)
}

func (w *world) send(s *server) {
	if s.answer != nil || !s.bucket.Due(w.now) {
		return
	}
	w.asks++
	r := s.bucket.Ask(w.now)
	if err := r.Check(); err != nil {
		w.broken = err.Error()
	}
	if w.unkept {
		r.Kept = lease.Sums{Demand: r.Kept.Demand}
	}
	a := lease.Answer{Err: lease.ErrUnavailable}
	if w.now >= w.down && w.rng.IntN(100) > 0 {
		g, err := w.upstream.Renew(w.now, &r)
		if a = (lease.Answer{Grant: g, Err: err}); w.rng.IntN(100) == 0 {
			a = lease.Answer{Err: lease.ErrUnavailable} // it was answered, and the answer is lost
		}
	}
	s.answer, s.at = &a, w.now+w.rng.Int64N(trip*1000)
}

func (w *world) land(s *server) {
	if s.answer == nil || w.now < s.at {
		return
	}
	a := *s.answer
	s.answer = nil
	s.bucket.Answered(w.now, a)
	queue, early := s.queue, len(s.queue)-s.late
	s.queue, s.late = nil, 0
	for i, try := range queue {
		if !try(i < early) {
			s.queue = append(s.queue, try)
		}
	}
	s.bucket.Settled()
	w.books(s)
	w.send(s)
}

// books holds the relay to what the store's record of it says.
func (w *world) books(s *server) {
	rec := w.upstream.Holders[s.name]
	b := s.bucket
	if rec == nil || !b.live || b.flying || w.broken != "" {
		return
	}
	out := &b.state.Out
	switch {
	case w.now < w.lenient:
	case max(b.state.Level, 0)+out.Stock+out.Pile > rec.Lease.Stock+rec.Lease.Pile+limit.Micro:
		w.broken = fmt.Sprintf("%d here and %+v out, of %+v", b.state.Level, *out, rec.Lease)
	case out.Trickle > rec.Lease.Trickle:
		w.broken = fmt.Sprintf("trickles of %d are out, of %d", out.Trickle, rec.Lease.Trickle)
	}
}

// In every window, however short, no more is admitted than the burst, half of epsilon, and what the rate brings.
func TestBound(t *testing.T) {
	var admitted, asks, renewals int64
	for seed := range uint64(40) {
		w := newWorld(seed)
		for range 30_000 {
			w.step(seed%3 > 0)
			if w.broken != "" {
				t.Errorf("seed %d: %s (%d a second, burst %d)", seed, w.broken, w.spec.Units, w.spec.Burst)
				break
			}
		}
		admitted, asks, renewals = admitted+w.admitted, asks+int64(w.asks), renewals+int64(w.renewals)
	}
	t.Logf("%d admitted, %d renewals here, %d at the store", admitted, renewals, asks)
	if admitted == 0 {
		t.Error("nothing was admitted")
	}
}

// The bound can break: it does when the store takes back what is out.
func TestBoundControl(t *testing.T) {
	caught := 0
	for seed := range uint64(30) {
		w := newWorld(seed)
		w.unkept = true
		for range 15_000 {
			w.step(false)
		}
		if w.broken != "" {
			caught++
		}
	}
	if caught < 10 {
		t.Errorf("the bound was broken by %d of 30 seeds, want a third of them at least", caught)
	}
}
