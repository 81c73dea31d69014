package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is one thing that happens to a site. Faults of one lane happen one after the other, because they would undo
// each other.
type fault struct {
	name string
	lane string
	what string
	// can says why the fault cannot be done here; nil for always.
	can func(*site) error
	// do does the fault, waits, and undoes it if that is possible. It logs what it does as it happens. ctx ends with
	// the time for faults: then it undoes the fault at once.
	do func(ctx context.Context, s *site, random *rand.Rand) error
	// once allows the fault once in a run.
	once bool
	// named is a fault that no seed chooses: it is done only if it is asked for.
	named bool
}

var (
	// errNot means that a fault had no occasion: it is not counted.
	errNot = errors.New("no occasion")
	// errFault means that no fault has that name.
	errFault = errors.New("no such fault")
)

// allFaults is every fault, lane by lane.
var allFaults = slices.Concat(gatewayFaults, serverFaults, networkFaults, redisFaults, postgresFaults)

// plan is what a seed says: for each lane its faults, in order, and the randomness of their details. There are more
// faults than there is time for.
type plan struct {
	lanes []lane
}

type lane struct {
	faults []fault
	random *rand.Rand
}

// draw makes the plan of a seed. Every fault of a lane comes once before any comes twice.
func draw(o options) (plan, error) {
	chosen := slices.DeleteFunc(slices.Clone(allFaults), func(f fault) bool { return f.named })
	names := o.also
	if o.only != "" {
		chosen, names = nil, strings.Trim(o.only+","+o.also, ",")
	}
	if names != "" {
		for _, name := range strings.Split(names, ",") {
			i := slices.IndexFunc(allFaults, func(f fault) bool { return f.name == name })
			if i < 0 {
				return plan{}, fmt.Errorf("%w: %q; --list names them", errFault, name)
			}
			chosen = append(chosen, allFaults[i])
		}
	}
	var p plan
	for i, name := range []string{"gateway", "server", "network", "redis", "postgres"} {
		l := lane{random: rand.New(rand.NewPCG(o.seed, uint64(i)))}
		for round := range 20 {
			var mine []fault
			for _, f := range chosen {
				if f.lane == name && (round == 0 || !f.once) {
					mine = append(mine, f)
				}
			}
			l.random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			if round == 0 { // what is asked for is done, however short the load
				slices.SortStableFunc(mine, func(a, b fault) int { return btoi(b.named) - btoi(a.named) })
			}
			l.faults = append(l.faults, mine...)
		}
		if len(l.faults) > 0 {
			p.lanes = append(p.lanes, l)
		}
	}
	return p, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// carryOut does a lane's faults until ctx ends, with pauses between.
func (s *site) carryOut(ctx context.Context, l lane) {
	for _, f := range l.faults {
		// Each fault has randomness of its own, whatever those before it used up.
		random := rand.New(rand.NewPCG(l.random.Uint64(), 0))
		s.sleep(ctx, time.Duration(500+random.IntN(2500))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		if f.can != nil {
			if err := f.can(s); err != nil {
				s.say("%s: left out: %v", f.name, err)
				continue
			}
		}
		switch err := f.do(ctx, s, random); {
		case err == nil:
			s.count(f.name)
		case errors.Is(err, errNot) || ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
			s.say("%s: %v", f.name, err)
		default:
			s.fail(fmt.Errorf("%s: %w", f.name, err))
		}
	}
}

// between draws a duration.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}
