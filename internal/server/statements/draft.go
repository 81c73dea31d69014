package statements

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/rpc"
)

// draft is a statement as of the newest block, and how far it can be trusted.
type draft struct {
	*billing.Statement
	closed   *terms.Closed // set instead of all else where the period is closed
	period   billing.Period
	next     billing.Period // the tenant's to be closed next
	number   int64          // of the next closed statement
	billing  string         // policy.Billing.Text that the period is by
	plans    int64          // terms.Closed.Plans
	complete time.Time
	lagging  []string
	lost     ledger.Losses // of the period and those whose late usage is on it
	withheld []ledger.Withheld
}

func (s *Service) draft(ctx context.Context, tenant string, which func(*course, int64) (billing.Period, error)) (*draft, error) {
	if _, err := s.policy.MakePlanChanges(ctx); err != nil { // or the plan before would be charged on
		return nil, err
	}
	subscriber, err := s.policy.Subscriber(ctx, tenant)
	if err != nil {
		return nil, err
	}
	c, err := s.course(ctx, &subscriber)
	if err != nil {
		return nil, err
	}
	if !c.pays {
		return nil, fmt.Errorf("%w: tenant %s has no statements: its parent %s pays for it, on whose it is", fault.ErrInvalid, tenant, subscriber.Parent)
	}
	in := &billing.Input{Tenant: tenant, Cycle: c.cycle, Subscriptions: subscriber.Subscriptions}
	now := s.now().Unix()
	if in.Period, err = which(c, now); err != nil {
		return nil, statementError(err)
	}
	for i := range c.closed {
		if c.closed[i].Period.Name == in.Period.Name {
			return &draft{closed: &c.closed[i]}, nil
		}
	}
	if in.Period.From > now {
		return nil, fmt.Errorf("%w: period %s of tenant %s has not begun; it will at %s", fault.ErrInvalid, in.Period.Name, tenant,
			time.Unix(in.Period.From, 0).In(in.Cycle.Zone).Format(time.RFC3339))
	}
	if len(c.closed) > 0 {
		if err := s.sameLedger(ctx, &c.closed[0]); err != nil {
			return nil, err
		}
		in.Since = c.closed[0].Block.Height
		if in.Period == c.next { // late usage is in one statement: the next
			for i := range c.closed {
				in.Earlier = append(in.Earlier, c.closed[i].Period)
			}
		}
	}
	if in.Period == c.next { // as late usage: what is left is used up in the order of the periods
		credits, err := s.policy.Credits(ctx, tenant)
		if err != nil {
			return nil, err
		}
		for i := range credits {
			in.Credits = append(in.Credits, credits[i].Billing())
		}
	}
	sums, err := s.together(ctx, in, &c.home)
	if err != nil {
		return nil, err
	}
	d := &draft{period: in.Period, next: c.next, number: int64(len(c.closed)) + 1, billing: subscriber.Billing.Text(), plans: plansBefore(&subscriber, &c.home, in.Period.To), complete: sums.Complete, lagging: sums.Lagging, lost: sums.Lost}
	if d.withheld, err = s.withheld(ctx, in); err != nil {
		return nil, err
	}
	if d.Statement, err = billing.Rate(in); err != nil {
		return nil, statementError(err)
	}
	return d, nil
}

// plansBefore is the value of terms.Closed.Plans.
func plansBefore(sub *terms.Subscriber, home *terms.Household, to int64) (n int64) {
	for _, of := range slices.Concat([]terms.Subscriber{*sub}, home.Members) {
		for _, had := range of.Subscriptions {
			if had.From < to {
				n++
			}
		}
	}
	for _, changes := range home.Payers {
		for _, c := range changes {
			if c.From < to {
				n++
			}
		}
	}
	return n
}

// sameLedger refuses a ledger without the block of the last statement: a restored one, or another. Its blocks above
// that height would not be what came since.
func (s *Service) sameLedger(ctx context.Context, last *terms.Closed) error {
	if last.Block.Height == 0 {
		return nil
	}
	b, err := s.books.Block(ctx, last.Block.Height)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return rpc.LedgerError(err)
	}
	if err == nil && hex.EncodeToString(b.Hash[:]) == last.Block.Hash {
		return nil
	}
	has := "has none of that height"
	if err == nil {
		has = fmt.Sprintf("has %x there", b.Hash)
	}
	return fmt.Errorf("%w: the statement of %s of tenant %s was made at block %d, %s, and this ledger %s: it is not the one that it was, so what is new in it cannot be told",
		fault.ErrInvalid, last.Period.Name, last.Tenant, last.Block.Height, last.Block.Hash, has)
}

// isComplete reports whether all usage of the period is in blocks up to the draft's.
func (d *draft) isComplete() bool { return d.complete.Unix() >= d.period.To && !d.complete.IsZero() }

// mayClose says why the draft may not be kept.
func (d *draft) mayClose(now time.Time, force string) error {
	end := time.Unix(d.period.To, 0).UTC().Format(time.RFC3339)
	switch {
	case d.period.To > now.Unix():
		return fmt.Errorf("%w: period %s of tenant %s has not ended; it will at %s", fault.ErrInvalid, d.period.Name, d.Tenant, end)
	case d.period != d.next:
		return fmt.Errorf("%w: of tenant %s, period %s is closed next; periods are closed one after another", fault.ErrInvalid, d.Tenant, d.next.Name)
	case force != "":
		return nil
	case d.isComplete() && len(d.withheld) > 0:
		return fmt.Errorf("%w: of usage of tenant %s before the end of %s, %s, some is in quarantine: %s; release or discard it, or close it with a reason",
			fault.ErrInvalid, d.Tenant, d.period.Name, end, tellWithheld(d.withheld))
	case d.isComplete():
		return nil
	}
	through := "nothing was settled yet"
	if !d.complete.IsZero() {
		through = "it is through " + d.complete.UTC().Format(time.RFC3339)
	}
	held := ""
	if len(d.lagging) > 0 {
		held = ", held back by " + strings.Join(d.lagging, ", ") + " (an agent that is gone is declared lost, or its key revoked)"
	}
	return fmt.Errorf("%w: usage of tenant %s is not complete through the end of %s, %s: %s%s; wait, or close it with a reason", fault.ErrInvalid,
		d.Tenant, d.period.Name, end, through, held)
}

// usage reads the units and prices of a statement at the newest block. Hours that no change divides are read whole,
// from roll-ups. They are all but a few of a period.
func (s *Service) usage(ctx context.Context, in *billing.Input) (ledger.SealedSums, error) {
	shadows, err := s.policy.Shadows(ctx)
	if err != nil {
		return ledger.SealedSums{}, err
	}
	if in.Versions, err = s.prices.during(ctx, []billing.Period{in.Period}, nil); err != nil {
		return ledger.SealedSums{}, err
	}
	for {
		cut := in.Divided()
		sums, err := s.sealed(ctx, in, shadows, cut)
		// The other versions of the usage do not begin in the period, but a policy that is applied meanwhile does.
		divides := func(hour int64) bool { return !slices.Contains(cut, hour) }
		if err != nil || !slices.ContainsFunc(in.Divided(), divides) {
			return sums, err
		}
	}
}

func (s *Service) sealed(ctx context.Context, in *billing.Input, shadows, cut []int64) (ledger.SealedSums, error) {
	q := ledger.SealedQuery{Tenant: in.Tenant, Since: in.Since, Late: len(in.Earlier) > 0, From: in.Period.From, To: in.Period.To, Except: shadows, Hourly: true, Cut: cut}
	sums, err := s.books.Sealed(ctx, q)
	if err != nil {
		return sums, rpc.LedgerError(err)
	}
	in.Usage = nil
	in.Block.Height = sums.Block.Height
	if in.Block.Height > 0 {
		in.Block.Hash = hex.EncodeToString(sums.Block.Hash[:])
	}
	all := sums.Usage
	// Earlier periods are read from the first with late usage on, at the same block.
	periods := slices.DeleteFunc(slices.Clone(in.Earlier), func(p billing.Period) bool { return sums.Late == 0 || p.To <= sums.Late })
	if len(periods) > 0 {
		q.Hourly, q.Late = false, false // for it is told apart by what came late
		q.Height, q.From, q.To = sums.Block.Height, periods[len(periods)-1].From, in.Period.From
		late, err := s.books.Sealed(ctx, q)
		if err != nil {
			return sums, rpc.LedgerError(err)
		}
		all = append(late.Usage, all...)
	}
	var versions []int64
	for _, u := range all {
		in.Usage = append(in.Usage, billing.Usage{
			Slot: u.Slot, Version: u.Version, Plan: u.Plan, Late: u.Late, Units: billing.Units{Meter: u.Meter, Admitted: u.Admitted, Overage: u.Overage},
		})
		if !slices.Contains(versions, u.Version) {
			versions = append(versions, u.Version)
		}
	}
	in.Versions, err = s.prices.during(ctx, append(periods, in.Period), versions)
	return sums, err
}
