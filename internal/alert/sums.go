package alert

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

const (
	// keptSums bounds the sums that are kept, some hundred bytes each. Others are read at every look.
	keptSums = 200_000
	// keptFor is how long sums are added to before they are read again. Then roll-ups that were rebuilt (`quotactl
	// ledger rebuild`) count, and questions about ended periods are dropped.
	keptFor = time.Hour
	// maxAdded bounds what is added at once. If blocks hold more, everything is read again.
	maxAdded = 200_000
	// readAtOnce is how many tenants one statement reads.
	readAtOnce = 20_000
)

// Ask is a question of one tenant's usage.
type Ask struct {
	Tenant string
	Query  ledger.HourlyQuery // without tenants
	Once   bool               // asked by the time that it is: never the same again
}

// Answer has the tenant's sums, or why there are none.
type Answer struct {
	Sums []ledger.HourlySum
	Err  error
}

// Sum answers questions in their order. An error concerns all of them.
type Sum func(ctx context.Context, asks []Ask) ([]Answer, error)

// sums answers questions, and keeps the answers. The contents of new blocks are added to them. So a look costs as much
// as the new blocks hold, however many hours the month has. All kept answers are as of one block.
//
// The answers equal the ledger's: Sum(block) + Added(block, later) = Sum(later).
type sums struct {
	usage Usage
	now   func() time.Time

	block ledger.KeptBlockInfo
	begun time.Time // when what is kept was begun
	n     int
	kept  map[string][]*kept // by tenant
}

type kept struct {
	shape string
	query ledger.HourlyQuery
	sums  []ledger.HourlySum
}

// forget drops everything, and goes on from a block.
func (s *sums) forget(block ledger.KeptBlockInfo) {
	s.block, s.begun, s.n, s.kept = block, s.now(), 0, make(map[string][]*kept)
}

// advance goes on to a later block, and returns what came since. It returns false if the ledger cannot tell that, or if
// since is not the block of the kept sums.
func (s *sums) advance(ctx context.Context, since int64, to ledger.KeptBlockInfo) ([]ledger.AddedSum, bool, error) {
	if s.kept == nil || s.block.Height != since || to.Height < since {
		s.forget(to)
		return nil, false, nil
	}
	if to.Height == since && to.Hash == s.block.Hash {
		return nil, true, nil
	}
	added, ok, err := s.usage.Added(ctx, s.block, to.Height, maxAdded)
	if err != nil {
		return nil, false, err
	}
	if !ok || s.now().Sub(s.begun) > keptFor {
		s.forget(to)
		return added, ok, nil
	}
	s.block = to
	for i := range added {
		for _, k := range s.kept[added[i].Tenant] {
			k.add(&added[i])
		}
	}
	return added, true, nil
}

func (k *kept) add(a *ledger.AddedSum) {
	start, ok := k.query.Start(a)
	if !ok {
		return
	}
	for i := range k.sums {
		h := &k.sums[i]
		if h.Start == start && h.Limit == a.Limit && h.Meter == a.Meter && h.Version == a.Version && h.Plan == a.Plan {
			h.Add(a.Sum)
			return
		}
	}
	k.sums = append(k.sums, ledger.HourlySum{Tenant: a.Tenant, Start: start, Limit: a.Limit, Meter: a.Meter, Version: a.Version, Plan: a.Plan, Sum: a.Sum})
}

// answer is Sum. Questions that differ only in their tenants become one question to the ledger.
func (s *sums) answer(ctx context.Context, asks []Ask) ([]Answer, error) {
	answers := make([]Answer, len(asks))
	missing := make(map[string][]int)
	var shapes []string // in their order, so that a failure is the same each time
	for i := range asks {
		shape := shapeOf(&asks[i].Query)
		if k := s.find(asks[i].Tenant, shape); k != nil {
			answers[i].Sums = k.sums
			continue
		}
		if missing[shape] == nil {
			shapes = append(shapes, shape)
		}
		missing[shape] = append(missing[shape], i)
	}
	for _, shape := range shapes {
		for which := missing[shape]; len(which) > 0; {
			some := which[:min(len(which), readAtOnce)]
			which = which[len(some):]
			if err := s.read(ctx, shape, asks, answers, some); err != nil {
				return nil, err
			}
		}
	}
	return answers, nil
}

// read answers some questions of one shape from the ledger.
func (s *sums) read(ctx context.Context, shape string, asks []Ask, answers []Answer, some []int) error {
	q := asks[some[0]].Query
	q.Tenants = make([]string, len(some))
	of := make(map[string]int, len(some))
	for j, i := range some {
		q.Tenants[j] = asks[i].Tenant
		of[asks[i].Tenant] = i
	}
	got, err := s.usage.Hourly(ctx, q)
	if err != nil && (ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable)) {
		return err
	}
	for _, h := range got.Sums {
		a := &answers[of[h.Tenant]]
		a.Sums = append(a.Sums, h)
	}
	q.Tenants = nil
	for _, i := range some {
		a := &answers[i]
		if a.Err = err; err != nil || asks[i].Once || got.Block.Height != s.block.Height || s.kept == nil || s.n+len(a.Sums)+1 > keptSums {
			continue
		}
		if s.find(asks[i].Tenant, shape) != nil {
			continue // it was asked for twice
		}
		s.n += len(a.Sums) + 1
		s.kept[asks[i].Tenant] = append(s.kept[asks[i].Tenant], &kept{shape, q, a.Sums})
	}
	return nil
}

func (s *sums) find(tenant, shape string) *kept {
	for _, k := range s.kept[tenant] {
		if k.shape == shape {
			return k
		}
	}
	return nil
}

// shapeOf distinguishes questions that differ in more than their tenants.
func shapeOf(q *ledger.HourlyQuery) string {
	return fmt.Sprint(q.From, q.To, q.Metered, q.Edges, q.Except, " ", q.Limit)
}
