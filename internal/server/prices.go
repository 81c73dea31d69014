package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy"
)

// keptPrices bounds the policy versions whose prices are in memory.
const keptPrices = 1_000

// prices knows what plans cost by each policy version. Versions never change, so that
// what was read once is kept.
type prices struct {
	store policy.Store

	mu   sync.Mutex
	kept map[int64]map[string]*billing.Price
	list []billing.Version // those that ever were in force, without prices, through newest; newest first
	// newest is the version, or the trial, that list was read at.
	newest int64
}

func newPrices(store policy.Store) *prices {
	return &prices{store: store, kept: make(map[int64]map[string]*billing.Price)}
}

// of returns the prices of a version, by plan.
func (p *prices) of(ctx context.Context, number int64) (map[string]*billing.Price, error) {
	p.mu.Lock()
	found, ok := p.kept[number]
	p.mu.Unlock()
	if ok {
		return found, nil
	}
	v, err := p.store.Version(ctx, number)
	if err != nil {
		return nil, err
	}
	doc, err := policy.Parse(v.File, []byte(v.Text))
	if err != nil {
		// Its text, not the error: this is not the caller's document.
		return nil, fmt.Errorf("policy version %d cannot be read by this server: %s", number, err.Error())
	}
	found = pricesOf(doc)
	p.mu.Lock()
	if len(p.kept) >= keptPrices {
		clear(p.kept)
	}
	p.kept[number] = found
	p.mu.Unlock()
	return found, nil
}

// pricesOf returns what a document's plans cost, by plan; those that cost nothing have none.
func pricesOf(doc *policy.Document) map[string]*billing.Price {
	all := make(map[string]*billing.Price)
	for _, plan := range doc.Policy(0).Plans {
		if price := doc.Price(plan.Name); price != nil {
			all[plan.Name] = price
		}
	}
	return all
}

// during returns the versions that were in force within any of the periods, with their
// prices, and those of the numbers besides.
func (p *prices) during(ctx context.Context, periods []billing.Period, numbers []int64) ([]billing.Version, error) {
	all, err := p.versions(ctx)
	if err != nil {
		return nil, err
	}
	var wanted []billing.Version
	until := int64(1) << 62
	for _, v := range all {
		wants := slices.Contains(numbers, v.Number) || slices.ContainsFunc(periods, func(p billing.Period) bool {
			return v.From < p.To && until+billing.Grid > p.From
		})
		until = v.From
		if !wants {
			continue
		}
		if v.Prices, err = p.of(ctx, v.Number); err != nil {
			return nil, err
		}
		wanted = append(wanted, v)
	}
	slices.Reverse(wanted)
	return wanted, nil
}

// versions are those that ever were in force, newest first. They are read again where there
// is one more.
func (p *prices) versions(ctx context.Context) ([]billing.Version, error) {
	page, err := p.store.Versions(ctx, 0, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	newest := page[0].Number
	p.mu.Lock()
	all, same := p.list, p.newest == newest
	p.mu.Unlock()
	if same {
		return all, nil
	}
	all = nil
	for before := newest + 1; ; {
		if page, err = p.store.Versions(ctx, before, policy.MaxPage); err != nil {
			return nil, err
		}
		for _, v := range page {
			if v.Shadow { // never was in force
				continue
			}
			all = append(all, billing.Version{Number: v.Number, From: seconds(v.Created)})
		}
		if len(page) < policy.MaxPage {
			break
		}
		before = page[len(page)-1].Number
	}
	p.mu.Lock()
	p.list, p.newest = all, newest
	p.mu.Unlock()
	return all, nil
}

// seconds is a time in whole Unix seconds, rounded up.
func seconds(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}
