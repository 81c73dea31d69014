package budgets

import (
	"sync"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// counts is what was counted of streams, outside the SDK. Times are since it began.
type counts struct {
	budget budget
	extend int64 // tokens that a stream reserves at a time

	mu                          sync.Mutex
	began                       time.Time
	asked, denied, early, calls int64
	requests, in, out, spent    int64
	underWay, most              int64 // streams: now, and at a time
	ideal                       ideal
	over                        int64 // tokens above the budget, at the most
	beyond                      int64 // likewise, without an extension of each stream under way
	monthOver                   time.Duration
	tokens                      []sample
}

// sample is how many tokens had been used by then.
type sample struct {
	at     time.Duration
	tokens int64
}

func newCounts(b budget, s *strategy) *counts {
	c := &counts{budget: b, extend: s.extend, began: time.Now(), over: -b.minute, beyond: -b.minute}
	c.ideal.budget = &c.budget
	return c
}

// follow begins to count a request.
func (c *counts) follow(q request) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return &stream{counts: c, model: q.model}
}

// stream counts one request.
type stream struct {
	*counts
	model string
	last  usage
	open  bool
}

func (s *stream) denied(d client.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.denied++
	if s.monthOver == 0 && d.Limit() == "month" {
		s.monthOver = time.Since(s.began)
	}
}

func (s *stream) begins(client.ReservationID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	s.requests++
	s.underWay++
	s.most = max(s.most, s.underWay)
}

func (s *stream) asks(usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

func (s *stream) answered() {}

func (s *stream) uses(usage) {}

func (s *stream) used(u usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in += u.in - s.last.in
	s.out += u.out - s.last.out
	s.spent += spend(s.model, u) - spend(s.model, s.last)
	over := s.ideal.take(time.Now(), u.in+u.out-s.last.in-s.last.out)
	s.over, s.beyond = max(s.over, over), max(s.beyond, over-s.extend*s.underWay)
	s.last = u
	if at := time.Since(s.began); len(s.tokens) == 0 || at-s.tokens[len(s.tokens)-1].at > time.Second {
		s.tokens = append(s.tokens, sample{at, s.in + s.out})
	}
}

func (s *stream) ends(early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if early {
		s.early++
	}
	s.open = false
	s.underWay--
}

// killed counts a request as over if its gateway was killed meanwhile.
func (s *stream) killed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.underWay--
	}
}

// usedOfMinutes is the part of the minutes' budget that was used: of whole minutes, from the second on, for the first
// has the burst, while callers ask and the month is not over.
func (c *counts) usedOfMinutes() float64 {
	until := *duration
	if c.monthOver > 0 {
		until = min(until, c.monthOver)
	}
	from, to := c.tokens[0], c.tokens[0]
	for _, s := range c.tokens {
		if s.at <= time.Minute {
			from = s
		}
		if s.at <= until.Truncate(time.Minute) {
			to = s
		}
	}
	return float64(to.tokens-from.tokens) / (to.at - from.at).Minutes() / float64(c.budget.minute)
}

// usedOfMonth is the part of the month's budget that was used.
func (c *counts) usedOfMonth() float64 { return float64(c.spent) / float64(c.budget.month) }

// meters are what the ledger must have.
func (c *counts) meters() map[string]int64 {
	return map[string]int64{"requests": c.requests, "tokens": c.in + c.out, "tokens_in": c.in, "tokens_out": c.out, "microdollars": c.spent}
}

// The ideal limiter counts all that was used above its budget.
func TestIdeal(t *testing.T) {
	type step struct {
		at           time.Duration
		tokens, over int64
	}
	for burst, steps := range map[int64][]step{
		10: {{0, 10, 0}, {0, 5, 5}, {500 * time.Millisecond, 0, 0}, {600 * time.Millisecond, 2, 1}, {time.Hour, 10, 0}},
		0:  {{0, 600, 0}, {59 * time.Second, 1, 1}, {time.Minute, 600, 0}, {time.Minute, 2, 2}},
	} {
		l := ideal{budget: &budget{minute: 600, burst: burst}}
		begin := time.Unix(1_800_000_000, 0)
		for _, s := range steps {
			if over := l.take(begin.Add(s.at), s.tokens); over != s.over {
				t.Errorf("burst %d, %d tokens after %v: %d too many, want %d", burst, s.tokens, s.at, over, s.over)
			}
		}
	}
}
