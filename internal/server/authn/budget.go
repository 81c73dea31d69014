package authn

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
)

const (
	// familySize is how many agents' budgets all agents of one key share. Without it a key would get another budget for
	// every agent that it invents.
	familySize = 32
	// mostSpenders bounds the agents, and the keys, whose budgets are remembered. Beyond it, those with a full budget
	// are forgotten first.
	mostSpenders = 10_000
)

// Allowance is what one agent may ask of this server: Burst at once, and Rate a second. More is refused with
// RESOURCE_EXHAUSTED. Its agent sends again later, and nothing is lost.
type Allowance struct {
	Burst, Rate float64
	What        string
}

// Budgets are what agents have left of an allowance, and what keys have left of familySize allowances.
type Budgets struct {
	of  Allowance
	now func() time.Time

	mu           sync.Mutex
	agents, keys purses
}

// purses are what is left of an allowance, by who has it.
type purses struct {
	of    Allowance
	spent map[string]*spender
}

type spender struct {
	left float64
	at   time.Time
}

// NewBudgets returns full budgets.
func NewBudgets(of Allowance) *Budgets {
	family := of
	family.Burst, family.Rate = familySize*of.Burst, familySize*of.Rate
	return &Budgets{of: of, now: time.Now, agents: purses{of, make(map[string]*spender)}, keys: purses{family, make(map[string]*spender)}}
}

// Take takes n from an agent's budget and its key's, or says which of them has too little; nil budgets are endless. A
// request for more than a whole budget passes when the budget is full, because it has to pass some time.
func (b *Budgets) Take(p Principal, agent string, n int) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	want := min(float64(n), b.of.Burst)
	key := b.keys.open(p.Name, now)
	if key.left < want {
		return b.keys.none("all agents of key "+p.Name+" have", want-key.left)
	}
	own := b.agents.open(p.Name+"\x00"+agent, now)
	if own.left < want {
		return b.agents.none("agent "+agent+" has", want-own.left)
	}
	key.left -= float64(n)
	own.left -= float64(n)
	return nil
}

func (p *purses) none(who string, lacking float64) error {
	return fmt.Errorf("%w: %s %.0f %s at once and %.0f a second; send again in %v",
		fault.ErrBusy, who, p.of.Burst, p.of.What, p.of.Rate, time.Duration(lacking/p.of.Rate*float64(time.Second)).Round(time.Millisecond))
}

// open returns the purse of a name, filled up to now.
func (p *purses) open(name string, now time.Time) *spender {
	s := p.spent[name]
	if s == nil {
		p.room(now)
		s = &spender{left: p.of.Burst, at: now}
		p.spent[strings.Clone(name)] = s
	}
	s.left = min(s.left+p.of.Rate*now.Sub(s.at).Seconds(), p.of.Burst)
	s.at = now
	return s
}

// room makes room for one more. Full budgets go first; if there are none, any goes.
func (p *purses) room(now time.Time) {
	if len(p.spent) < mostSpenders {
		return
	}
	whole := time.Duration(p.of.Burst / p.of.Rate * float64(time.Second))
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
