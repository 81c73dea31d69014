package statements

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// keptPrices bounds the policy versions whose prices are in memory.
const keptPrices = 1_000

// prices knows what plans cost by each policy version. Versions never change, so what was read is kept. The key
// includes when a version was made, because a restored database may use a number again.
type prices struct {
	store policystore.Store

	mu   sync.Mutex
	kept map[madeVersion]map[string]*billing.Price
	list []madeVersion // those that ever were in force, through newest; newest first
	// newest is the version, or the trial, that list was read at.
	newest madeVersion
}

// madeVersion is a policy version and when it was made.
type madeVersion struct {
	number int64
	made   int64 // Unix milliseconds
}

func madeOf(v *policystore.Version) madeVersion { return madeVersion{v.Number, v.Created.UnixMilli()} }

// from is since when it is in force, in whole Unix seconds, rounded up.
func (v madeVersion) from() int64 { return seconds(time.UnixMilli(v.made)) }

func newPrices(store policystore.Store) *prices {
	return &prices{store: store, kept: make(map[madeVersion]map[string]*billing.Price)}
}

// of returns the prices of a version, by plan.
func (p *prices) of(ctx context.Context, which madeVersion) (map[string]*billing.Price, error) {
	p.mu.Lock()
	found, ok := p.kept[which]
	p.mu.Unlock()
	if ok {
		return found, nil
	}
	v, err := p.store.Version(ctx, which.number)
	if err != nil {
		return nil, err
	}
	doc, err := policy.Parse(v.File, []byte(v.Text))
	if err != nil {
		// Its text, not the error: this is not the caller's document.
		return nil, fmt.Errorf("policy version %d cannot be read by this server: %s", which.number, err.Error())
	}
	found = pricesOf(doc)
	p.mu.Lock()
	if len(p.kept) >= keptPrices {
		clear(p.kept)
	}
	p.kept[madeOf(&v)] = found
	p.mu.Unlock()
	return found, nil
}

// pricesOf returns what a document's plans cost, by plan: nil for those that cost nothing.
func pricesOf(doc *policy.Document) map[string]*billing.Price {
	all := make(map[string]*billing.Price)
	for _, plan := range doc.Policy(0).Plans {
		all[plan.Name] = doc.Price(plan.Name)
	}
	return all
}

// during returns the versions that were in force within any of the periods, and those of the given numbers, with their
// prices.
func (p *prices) during(ctx context.Context, periods []billing.Period, numbers []int64) ([]billing.Version, error) {
	all, err := p.versions(ctx)
	if err != nil {
		return nil, err
	}
	var wanted []billing.Version
	until := int64(1) << 62
	for _, v := range all {
		from := v.from()
		wants := slices.Contains(numbers, v.number) || slices.ContainsFunc(periods, func(p billing.Period) bool {
			return from < p.To && until+billing.Grid > p.From
		})
		until = from
		if !wants {
			continue
		}
		costs, err := p.of(ctx, v)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, billing.Version{Number: v.number, From: from, Prices: costs})
	}
	slices.Reverse(wanted)
	return wanted, nil
}

// Versions are the policy versions that ever were in force, oldest last and without prices.
func (s *Service) Versions(ctx context.Context) (all []billing.Version, err error) {
	made, err := s.prices.versions(ctx)
	for _, v := range made {
		all = append(all, billing.Version{Number: v.number, From: v.from()})
	}
	return all, err
}

// versions are all that were ever in force, newest first. They are read again when the newest has changed.
func (p *prices) versions(ctx context.Context) ([]madeVersion, error) {
	page, err := p.store.Versions(ctx, 0, 1)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	newest := madeOf(&page[0])
	p.mu.Lock()
	all, same := p.list, p.newest == newest
	p.mu.Unlock()
	if same {
		return all, nil
	}
	all = nil
	for before := newest.number + 1; ; {
		if page, err = p.store.Versions(ctx, before, policystore.MaxPage); err != nil {
			return nil, err
		}
		for i := range page {
			if !page[i].Shadow { // those never were in force
				all = append(all, madeOf(&page[i]))
			}
		}
		if len(page) < policystore.MaxPage {
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
