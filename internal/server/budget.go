package server

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/fault"
)

// What one agent's key may ask of this server: so much at once, and so much a second. What is more is refused with
// RESOURCE_EXHAUSTED: its agent sends again, later, and nothing is lost. A gateway of 10,000 tenants that starts uses a tenth of it.
var (
	// Buckets renewed and tenants asked for. It also bounds the buckets that one key can fill the lease store with.
	renewBudget = allowance{burst: 250_000, rate: 50_000, what: "renewals and tenants"}
	// Bytes of reports, which bound their rows, each report counting reportBytes more.
	settleBudget = allowance{burst: 256 << 20, rate: 8 << 20, what: "bytes of reports"}
)

const (
	// reportBytes is what a report costs besides its rows: a heartbeat is not free.
	reportBytes = 4 << 10
	// mostSpenders bounds the agents whose budgets are remembered: of more, those that rest are forgotten first.
	mostSpenders = 10_000
)

type allowance struct {
	burst, rate float64
	what        string
}

// budgets are what agents have left of an allowance.
type budgets struct {
	of  allowance
	now func() time.Time

	mu    sync.Mutex
	spent map[string]*spender
}

type spender struct {
	left float64
	at   time.Time
}

func newBudgets(of allowance) *budgets {
	return &budgets{of: of, now: time.Now, spent: make(map[string]*spender)}
}

// take takes n of an agent's budget, or says that it has no more; nil budgets are endless. What costs more than all that there may be at once passes where
// all of it is there: it has to pass some time.
func (b *budgets) take(p principal, agent string, n int) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	name := p.name + "\x00" + agent
	s := b.spent[name]
	if s == nil {
		b.roomLocked(now)
		s = &spender{left: b.of.burst, at: now}
		b.spent[strings.Clone(name)] = s
	}
	s.left = min(s.left+b.of.rate*now.Sub(s.at).Seconds(), b.of.burst)
	s.at = now
	if want := min(float64(n), b.of.burst); s.left < want {
		return fmt.Errorf("%w: agent %s has %.0f %s at once and %.0f a second; send again in %v",
			fault.ErrBusy, agent, b.of.burst, b.of.what, b.of.rate, time.Duration((want-s.left)/b.of.rate*float64(time.Second)).Round(time.Millisecond))
	}
	s.left -= float64(n)
	return nil
}

// roomLocked makes room for one more: those whose budget is whole again go, and if there are none, any.
func (b *budgets) roomLocked(now time.Time) {
	if len(b.spent) < mostSpenders {
		return
	}
	whole := time.Duration(b.of.burst / b.of.rate * float64(time.Second))
	for name, s := range b.spent {
		if now.Sub(s.at) >= whole {
			delete(b.spent, name)
		}
	}
	for name := range b.spent {
		if len(b.spent) < mostSpenders {
			return
		}
		delete(b.spent, name)
	}
}
