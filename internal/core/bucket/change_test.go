package bucket

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

func bucketOf(burst, units int64) *limit.Limit {
	return &limit.Limit{Name: "requests", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: units, Per: time.Second}, Burst: burst}
}

// Stocks shrink with the limit at once, and all of them together fit the new burst,
// whatever part of it each agent has and wherever its renewal is.
func TestShrinksAtOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		const now = 1_000_000
		burst := 1 + r.Int64N(10_000)
		old, l := bucketOf(burst, 100), bucketOf(1+r.Int64N(burst), 1+r.Int64N(100))
		left, trickles, was := burst, int64(0), int64(0)
		var all []*Bucket
		var flying []int64 // tokens of the answer under way, by bucket
		for range 1 + r.IntN(8) {
			b := Of(old)
			grant := r.Int64N(left + 1)
			left -= grant
			g := lease.Grant{Tokens: grant, Trickle: 10_000_000, Pile: 10, TTL: 10_000_000, Remaining: burst}
			g.Number = b.Renew(now, false).Number
			b.Apply(now, g)
			answer := int64(-1)
			if r.IntN(2) == 0 { // its next renewal is under way, and answered as the old limit has it
				answer = grant
				b.Renew(now, false)
			}
			all, flying = append(all, b), append(flying, answer)
			was += 10_000_000
		}
		for i, b := range all {
			spent := r.Int64N(b.State(now).Tokens + 1)
			if spent > 0 {
				b.Take(spent)
			}
			b.Follow(TermsAlone(l))
			if flying[i] >= 0 {
				b.Apply(now, lease.Grant{Number: b.number, Tokens: flying[i], Trickle: 10_000_000, Pile: 10, TTL: 10_000_000, Remaining: burst})
			}
			trickles += b.State(now).Trickle
		}
		var stock int64
		for _, b := range all {
			stock += b.State(now).Tokens
		}
		if stock > l.Burst {
			t.Fatalf("%d agents hold %d tokens of a burst that fell from %d to %d", len(all), stock, burst, l.Burst)
		}
		if most := was / 100 * l.Rate.Units; trickles > most {
			t.Fatalf("%d agents have trickles of %d, want at most %d", len(all), trickles, most)
		}
	}
}

// So do the parts of a window: what it is to have of the next one, and what it goes on with out of contact, of this and of each further.
func TestWindowsShrinkAtOnce(t *testing.T) {
	const length = 60_000_000
	window := func(units int64) *limit.Limit {
		return &limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: units, Per: length * 1000}}
	}
	for _, c := range []struct {
		name string
		next int64 // tokens of the next window
		lost bool
		at   int64 // after the grant, before the window's end
		want int64
	}{
		{"leased ahead", 40, false, length + drift(length), 10},
		{"of this window", 40, true, 1_000, 20 / 4},
		{"out of contact, a further window", 40, true, 2*length + 2*drift(length), 10},
	} {
		const now = length * 1000
		b := Of(window(400))
		b.Apply(now, lease.Grant{
			Number: b.Renew(now, false).Number, Tokens: 20, TTL: length, ValidFrom: now, ValidUntil: now + length, Reset: length,
			Next: c.next, Remaining: 400,
		})
		b.Follow(TermsAlone(window(100)))
		b.Expire(now+c.at, c.lost)
		if got := b.State(now + c.at).Tokens; got < c.want-2 || got > c.want {
			t.Errorf("%s: %d tokens after the limit fell to a quarter, want %d", c.name, got, c.want)
		}
	}
}

// What was granted of a next window is of none once windows begin at other times: it is not spent beside what the window has that goes on.
func TestWindowsThatChangeHaveNoNext(t *testing.T) {
	const now, minute = 60_000_000_000, 60_000_000
	of := func(per time.Duration) *limit.Limit {
		return &limit.Limit{Name: "requests", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 400, Per: per}}
	}
	bucket := bucketOf(400, 10)
	zone := of(time.Minute)
	zone.Zone = "Asia/Kathmandu"
	for _, to := range []*limit.Limit{of(time.Hour), of(time.Second), zone, bucket} {
		for _, flying := range []bool{false, true} {
			b := Of(of(time.Minute))
			g := lease.Grant{Tokens: 20, TTL: 500_000, ValidFrom: now, ValidUntil: now + minute, Reset: 500_000, Next: 40, Remaining: 400}
			g.Number = b.Renew(now, false).Number
			if !flying {
				b.Apply(now, g)
			}
			b.Follow(TermsAlone(to))
			if flying { // the answer is of the old limit
				b.Apply(now, g)
			}
			b.Expire(now+500_000, false)
			if s := b.State(now + 500_000); s.Tokens > 20 || s.Live && b.Window() != now {
				t.Errorf("%v, answered after the change %t: %+v in the window of %d, want nothing of a next one", to.Rate, flying, s, b.Window()-now)
			}
		}
	}
}

// Slots are not spent by another algorithm, and nothing trickles into slots: what a bucket had is taken by requests and given back.
func TestSlotsAreNothingToSpend(t *testing.T) {
	const now = 1_000_000
	slots := &limit.Limit{Name: "requests", Algorithm: limit.Concurrency, Slots: 100}
	for _, c := range []struct {
		from, to *limit.Limit
		tokens   int64
	}{{slots, bucketOf(100, 100), 0}, {bucketOf(100, 100), slots, 20}} {
		b := Of(c.from)
		g := lease.Grant{Tokens: 20, TTL: 500_000, Trickle: 10_000_000, Pile: 50}
		if c.from == slots {
			g.Trickle = 0
		}
		g.Number = b.Renew(now, false).Number
		b.Apply(now, g)
		b.Follow(TermsAlone(c.to))
		if s := b.State(now + 300_000); s.Tokens != c.tokens || s.Trickle != 0 {
			t.Errorf("from %v to %v: %d units are there, and %d trickle, want %d and none", c.from.Algorithm, c.to.Algorithm, s.Tokens, s.Trickle, c.tokens)
		}
	}
}

// A limit that grew asks anew, whatever the old one denied and for however long.
func TestGrowsAtOnce(t *testing.T) {
	const now = 1_000_000
	old, l := bucketOf(10, 1), bucketOf(100, 1)
	b := Of(old)
	g := lease.Grant{TTL: 500_000, DenyFor: 3600_000_000}
	g.Number = b.Renew(now, false).Number
	b.Apply(now, g)
	if got := ask(b, now, 1, false); got != Denied {
		t.Fatalf("got %v before the change, want Denied", got)
	}
	b.Follow(TermsAlone(l))
	if got := ask(b, now, 1, false); got != Wait {
		t.Errorf("got %v after the change, want Wait", got)
	}
}

// What is left follows what is spent here, and is the whole again once it must be full.
func TestLeft(t *testing.T) {
	const now = 1_000_000
	b := Of(bucketOf(100, 10))
	if got := b.State(now).Remaining; got != 100 {
		t.Errorf("before anything is known: %d left, want all 100", got)
	}
	w := &Waiter{Units: 5, Done: func(Verdict) {}}
	b.Take(5)
	b.Enqueue(w)
	g := lease.Grant{Tokens: 25, TTL: 1_000_000, Remaining: 60, Reset: 4_000_000}
	g.Number = b.Renew(now, false).Number
	b.Apply(now, g) // the one that waited took 5, which are not part of the remainder
	if got := b.State(now).Remaining; got != 60 {
		t.Errorf("as granted: %d left, want 60", got)
	}
	b.Take(12)
	if got := b.State(now).Remaining; got != 48 {
		t.Errorf("after 12 more: %d left, want 48", got)
	}
	b.Renew(now, true)
	if got := b.State(now + 2_000_000).Remaining; got != 68 {
		t.Errorf("half way until it is full: %d left, want 48 and half of 40", got)
	}
	if got := b.State(now + 4_000_000).Remaining; got != 100 {
		t.Errorf("when it is full: %d left, want 100", got)
	}
}
