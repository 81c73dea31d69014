package leasetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Honest plays honest holders against a store: they spend what they were granted, at random times. It holds
// what they admit to the algorithm's own bound, at every instant. Answers are lost, renewals repeated, and
// holders die. Calls take no time, so only the step's own error is left. It returns what is broken, or "", and
// how much was admitted.
func Honest(s lease.Store, seed uint64) (broken string, admitted int64) {
	w := &world{s: s, rng: rand.New(rand.NewPCG(seed, 11)), now: start + int64(seed%977)*1_234_567}
	pick := func(v ...int64) int64 { return v[w.rng.IntN(len(v))] }
	switch seed % kinds {
	case 0, 1:
		w.period = pick(1_000_000, 2_000_000, 5_000_000, 20_000_000)
		w.spec = Sliding(pick(5, 50, 1000, 20_000), w.period, w.now)
		w.spec.EpsilonPPM = pick(0, 50_000)
	case 2:
		w.spec = Log(pick(1, 5, 50, limit.MaxLog), pick(1_000_000, 5_000_000))
		w.period = w.spec.Period
	case 3:
		w.spec = Slots(pick(1, 7, 100, 2000))
		w.period = 1_000_000
	case 4:
		w.period = 1_000_000
		w.spec = Bucket(pick(100, 1000, 20_000), 0)
		w.spec.Burst, w.spec.EpsilonPPM = w.spec.Units*pick(1, 2, 4)/2, 0
	case 5:
		// Servers know different versions of the limit for a while, or it shrinks and grows. The larger version
		// bounds all.
		w.period = 1_000_000
		w.spec = Bucket(pick(100, 1000, 20_000), 0)
		w.spec.Burst, w.spec.EpsilonPPM = w.spec.Units*pick(1, 2, 4), 0
		w.smaller = w.spec.Burst / pick(2, 10)
	case 6:
		// Epsilon, and holders that say what they had no room for.
		w.period = 1_000_000
		w.spec = Bucket(pick(100, 1000, 20_000), 0)
		w.spec.Burst, w.spec.EpsilonPPM = w.spec.Units*pick(1, 2, 4)/2, pick(10_000, 50_000)
	}
	n := 1 + w.rng.IntN(12)
	if w.spec.Refills() {
		n = 1 + n/4 // few, whose pauses tell
	}
	for i := range n {
		w.holders = append(w.holders, &honest{name: fmt.Sprint("agent-", i)})
	}
	load := float64(w.spec.Units) / float64(w.period) * []float64{0.5, 0.9, 1.2, 3}[w.rng.IntN(4)] / float64(n)
	for step := 0; step < 4000 && broken == ""; step++ {
		w.now += 1 + w.rng.Int64N(max(w.period/200, 2))
		if step%500 == 0 {
			load *= 0.5 + w.rng.Float64()
		}
		if step%40 == 0 && w.spec.Refills() {
			w.silence()
		}
		for _, h := range w.holders {
			if w.rng.IntN(3) == 0 && !h.silent {
				want := load * float64(w.period) / 200 * 3 * w.rng.Float64()
				w.use(h, int64(want+w.rng.Float64()))
			}
		}
		broken = w.bound()
	}
	return broken, w.total
}

// kinds is how many kinds of limit Honest plays.
const kinds = 7

// silence has some holders ask for nothing for a time, so that what trickles to them goes unused.
func (w *world) silence() {
	for _, h := range w.holders {
		h.silent = w.rng.IntN(3) == 0
	}
}

type world struct {
	s       lease.Store
	rng     *rand.Rand
	spec    lease.Spec
	period  int64
	now     int64
	holders []*honest
	spends  []lease.Entry // time and units
	total   int64

	owed  float64 // of what refills: admitted, less what the rate brought since
	until int64   // as of then

	smaller int64 // the burst that the limit has by turns; 0 for not
}

// honest is a holder as it should be: what it may spend, now and from its trickle.
type honest struct {
	name             string
	number           int64
	admitted, denied int64
	told             int64
	tokens           int64
	inUse            []int64 // when each ends
	grant            lease.Grant
	last             int64
	fraction         float64
	waited           int64 // of the grant, for requests that waited
	silent           bool  // nothing is asked of it
	expires          int64
	denyUntil        int64
	void, voidAt     int64 // what trickled and found no room, and when the last of it came
}

// use asks for units, one at a time.
func (w *world) use(h *honest, units int64) {
	w.refill(h)
	waiting := int64(0)
	for range units {
		switch {
		case h.tokens > 0:
			w.spend(h)
		case w.now < h.denyUntil:
			h.denied++
		default:
			waiting++
		}
	}
	if waiting > 0 || w.now > h.expires-h.grant.TTL/5 && h.grant.Number > 0 || len(h.inUse) > 0 && w.now >= h.expires-h.grant.TTL/2 {
		w.renew(h, waiting)
	}
}

func (w *world) spend(h *honest) {
	h.tokens--
	h.admitted++
	w.total++
	if n := len(w.spends); n > 0 && w.spends[n-1].At == w.now {
		w.spends[n-1].Units++
	} else {
		w.spends = append(w.spends, lease.Entry{At: w.now, Units: 1})
	}
	if w.spec.Algorithm == limit.Concurrency {
		h.inUse = append(h.inUse, w.now+w.rng.Int64N(w.period))
	}
}

// refill draws the trickle up to now, and ends the lease and the requests whose time it is.
func (w *world) refill(h *honest) {
	still := h.inUse[:0]
	for _, end := range h.inUse {
		if end > w.now {
			still = append(still, end)
		} else {
			h.tokens++ // a slot to spare
		}
	}
	h.inUse = still
	until := min(w.now, h.expires)
	if until > h.last && h.grant.Trickle > 0 {
		gained := float64(until-h.last)*float64(h.grant.Trickle)/1e12 + h.fraction
		room := h.grant.Pile
		if w.spec.Refills() {
			room += max(h.grant.Tokens-h.waited, 0) // what was spent of them the store counts until it hears of it
		}
		had := h.tokens + int64(gained)
		if h.tokens = max(h.tokens, min(had, room)); had > h.tokens {
			h.void, h.voidAt = h.void+had-h.tokens, until
		}
		h.fraction = gained - float64(int64(gained))
	}
	h.last = max(h.last, until)
	if w.now >= h.expires {
		h.tokens, h.grant.Trickle, h.fraction = 0, 0, 0
	}
}

func (w *world) renew(h *honest, waiting int64) {
	h.number++
	spec := w.spec
	if w.smaller > 0 && w.rng.IntN(3) == 0 {
		spec.Burst = w.smaller
	}
	if spec.Windowed() || spec.Sliding() {
		in(&spec, w.period, w.now)
	}
	r := lease.Renewal{
		Key: "bucket", Spec: spec, Holder: h.name, Now: w.now, Number: h.number, Began: 1,
		Admitted: h.admitted, Denied: h.denied, Told: h.told, Held: h.tokens, Waiting: waiting, Largest: min(waiting, 1),
		InUse: int64(len(h.inUse)), Trickle: h.grant.Trickle, ExpiresIn: max(h.expires-w.now, 0), Generation: h.grant.Generation,
	}
	if h.void > 0 {
		r.Void, r.VoidAgo = h.void, max(w.now-h.voidAt, 1)
	}
	if w.rng.IntN(4) == 0 {
		r.Strain = w.rng.Int64N(lease.MaxStrain + 1)
	}
	a := w.s.Renew(context.Background(), []lease.Renewal{r})[0]
	if a.Err != nil {
		panic(a.Err)
	}
	switch w.rng.IntN(20) {
	case 0: // the answer is lost
		if w.spec.Refills() {
			break // the old lease goes on beside the new one, and strict has no epsilon for that
		}
		h.denied += waiting
		return
	case 1: // the renewal is repeated
		a = w.s.Renew(context.Background(), []lease.Renewal{r})[0]
	case 2: // the holder dies, and comes back as another
		if w.spec.Algorithm != limit.Concurrency {
			*h = honest{name: fmt.Sprint(h.name, "+")}
			return
		}
	}
	h.void = 0
	h.told, h.grant, h.tokens, h.waited = r.Admitted, a.Grant, a.Grant.Tokens, waiting
	h.fraction = 0 // the store took it back; an agent keeps it, less than a token
	h.last, h.expires, h.denyUntil = w.now, w.now+a.Grant.TTL, w.now+a.Grant.DenyFor
	for range min(waiting, h.tokens) {
		w.spend(h)
		waiting--
	}
	h.denied += waiting
}

// bound returns what is broken at this instant, or "".
func (w *world) bound() string {
	l := float64(w.spec.Units)
	most := l * (1 + float64(w.spec.EpsilonPPM)/1e6)
	switch w.spec.Algorithm {
	case limit.TokenBucket:
		return w.refilled()
	case limit.SlidingWindow:
		edge := w.now - w.now%w.period
		var current, before int64
		for i := len(w.spends) - 1; i >= 0 && w.spends[i].At >= edge-w.period; i-- {
			if w.spends[i].At >= edge {
				current += w.spends[i].Units
			} else {
				before += w.spends[i].Units
			}
		}
		f := float64(w.now-edge) / float64(w.period)
		if got := float64(current) + float64(before)*(1-f); got > most+1e-6 {
			return fmt.Sprintf("%d now and %d before at %.3f of the window: %.1f, the most is %.1f", current, before, f, got, most)
		}
	case limit.SlidingWindowLog:
		var n int64
		for i := len(w.spends) - 1; i >= 0 && w.spends[i].At > w.now-w.period; i-- {
			n += w.spends[i].Units
		}
		if float64(n) > l {
			return fmt.Sprintf("%d in the last period, the most is %d", n, w.spec.Units)
		}
	case limit.Concurrency:
		var n int
		for _, h := range w.holders {
			w.refill(h)
			n += len(h.inUse)
		}
		if float64(n) > l {
			return fmt.Sprintf("%d in flight in %d slots", n, w.spec.Units)
		}
	}
	return ""
}

// refilled is bound for what refills, in every window.
func (w *world) refilled() string {
	rate, burst := float64(w.spec.Units)/float64(w.period), float64(w.spec.Burst)
	burst += float64(w.spec.EpsilonPPM) / 1e6 * (float64(w.spec.Units) + burst) // of a second; longer windows have more
	for _, s := range w.spends {
		w.owed = max(w.owed-float64(s.At-w.until)*rate, 0) + float64(s.Units)
		if w.until = s.At; w.owed > burst+1e-3 {
			return fmt.Sprintf("%.1f admitted beyond %d a second, the most is %.1f", w.owed, w.spec.Units, burst)
		}
	}
	w.spends = w.spends[:0]
	return ""
}

// mute is a store that does not hear which tokens found no room.
type mute struct{ lease.Store }

func (m mute) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	said := slices.Clone(renewals)
	for i := range said {
		said[i].Void, said[i].VoidAgo = 0, 0
	}
	return m.Store.Renew(ctx, said)
}

// Voids plays many seeds of Honest in which holders pause and have epsilon. The control hides from stores what
// holders had no room for: that breaks the bound.
func Voids(t *testing.T, seeds int, open func(t *testing.T) lease.Store) {
	t.Helper()
	caught := 0
	for i := range uint64(seeds) {
		seed := i*kinds + kinds - 1
		if broken, _ := Honest(open(t), seed); broken != "" {
			t.Errorf("seed %d: %s", seed, broken)
		}
		if broken, _ := Honest(mute{open(t)}, seed); broken != "" {
			caught++
		}
	}
	if caught < seeds/200 {
		t.Errorf("with stores that hear of nothing void the bound was broken by %d of %d seeds, want some: this proves little", caught, seeds)
	}
}

// Bounds plays many seeds of Honest, and then the control: stores that give each holder a bucket of its own
// break every bound.
func Bounds(t *testing.T, seeds int, open func(t *testing.T) lease.Store) {
	t.Helper()
	var admitted [kinds]int64
	caught := 0
	for seed := range uint64(seeds) {
		broken, n := Honest(open(t), seed)
		if broken != "" {
			t.Errorf("seed %d: %s", seed, broken)
		}
		admitted[seed%kinds] += n
		if broken, _ := Honest(unguarded{open(t)}, seed); broken != "" {
			caught++
		}
	}
	for kind, n := range admitted {
		if n == 0 {
			t.Errorf("nothing was admitted by seeds of kind %d", kind)
		}
	}
	if caught < seeds/4 {
		t.Errorf("without a sum over holders the bound was broken by %d of %d seeds, want a quarter of them at least", caught, seeds)
	}
}

// unguarded is a store without the sum over holders.
type unguarded struct{ lease.Store }

func (u unguarded) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	own := make([]lease.Renewal, len(renewals))
	for i, r := range renewals {
		r.Key += r.Holder
		own[i] = r
	}
	return u.Store.Renew(ctx, own)
}
