package server

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
)

// What one agent may ask of this server: so much at once, and so much a second. What is more is refused with
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
	// familySize is how many agents' budgets all agents of one key share: else a key for a family of them has as much as it
	// invents agents.
	familySize = 32
	// mostSpenders bounds the agents, and the keys, whose budgets are remembered: of more, those that rest are forgotten first.
	mostSpenders = 10_000
)

type allowance struct {
	burst, rate float64
	what        string
}

// budgets are what agents have left of an allowance, and what keys have left of familySize allowances.
type budgets struct {
	of  allowance
	now func() time.Time

	mu           sync.Mutex
	agents, keys purses
}

// purses are what is left of an allowance, by who has it.
type purses struct {
	of    allowance
	spent map[string]*spender
}

type spender struct {
	left float64
	at   time.Time
}

func newBudgets(of allowance) *budgets {
	family := of
	family.burst, family.rate = familySize*of.burst, familySize*of.rate
	return &budgets{of: of, now: time.Now, agents: purses{of, make(map[string]*spender)}, keys: purses{family, make(map[string]*spender)}}
}

// take takes n of an agent's budget and of its key's, or says that one of them has no more; nil budgets are endless. What costs more than all that there
// may be at once passes where all of it is there: it has to pass some time.
func (b *budgets) take(p principal, agent string, n int) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	want := min(float64(n), b.of.burst)
	key := b.keys.open(p.name, now)
	if key.left < want {
		return b.keys.none("all agents of key "+p.name+" have", want-key.left)
	}
	own := b.agents.open(p.name+"\x00"+agent, now)
	if own.left < want {
		return b.agents.none("agent "+agent+" has", want-own.left)
	}
	key.left -= float64(n)
	own.left -= float64(n)
	return nil
}

func (p *purses) none(who string, lacking float64) error {
	return fmt.Errorf("%w: %s %.0f %s at once and %.0f a second; send again in %v",
		fault.ErrBusy, who, p.of.burst, p.of.what, p.of.rate, time.Duration(lacking/p.of.rate*float64(time.Second)).Round(time.Millisecond))
}

// open is what somebody has left now.
func (p *purses) open(name string, now time.Time) *spender {
	s := p.spent[name]
	if s == nil {
		p.room(now)
		s = &spender{left: p.of.burst, at: now}
		p.spent[strings.Clone(name)] = s
	}
	s.left = min(s.left+p.of.rate*now.Sub(s.at).Seconds(), p.of.burst)
	s.at = now
	return s
}

// room makes room for one more: those whose budget is whole again go, and if there are none, any.
func (p *purses) room(now time.Time) {
	if len(p.spent) < mostSpenders {
		return
	}
	whole := time.Duration(p.of.burst / p.of.rate * float64(time.Second))
	for name, s := range p.spent {
		if now.Sub(s.at) >= whole {
			delete(p.spent, name)
		}
	}
	for name := range p.spent {
		if len(p.spent) < mostSpenders {
			return
		}
		delete(p.spent, name)
	}
}
