package server

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
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// statementService works out what tenants owe: it brings together what the ledger has
// sealed and what the policy store knows, and billing does the rest.
type statementService struct {
	quotav1.UnimplementedStatementServiceServer
	books  ledger.Books
	policy policy.Store
	prices *prices
	now    func() time.Time
}

// PreviewStatement works out a period from the newest block.
func (s *statementService) PreviewStatement(ctx context.Context, req *quotav1.PreviewStatementRequest) (*quotav1.PreviewStatementResponse, error) {
	d, err := s.draft(ctx, req.Tenant, func(c *course, now int64) (billing.Period, error) {
		if req.Period == "" {
			return c.at(now), nil
		}
		return c.named(req.Period)
	})
	if err != nil {
		return nil, err
	}
	if d.closed != nil {
		return nil, fmt.Errorf("%w: period %s of tenant %s was closed; show its statement", fault.ErrExists, d.closed.Period.Name, req.Tenant)
	}
	out, err := d.toProto()
	return &quotav1.PreviewStatementResponse{Statement: out}, err
}

// CloseStatement keeps the statement of the next period.
func (s *statementService) CloseStatement(ctx context.Context, req *quotav1.CloseStatementRequest) (*quotav1.CloseStatementResponse, error) {
	out, err := s.close(ctx, authn.PrincipalOf(ctx).Name, req.Tenant, req.Period, req.ForceReason)
	return &quotav1.CloseStatementResponse{Statement: out}, err
}

// close keeps the statement of a period, empty for the next; force is why although it is
// not complete.
func (s *statementService) close(ctx context.Context, actor, tenant, period, force string) (*quotav1.Statement, error) {
	d, err := s.draft(ctx, tenant, func(c *course, _ int64) (billing.Period, error) {
		if period == "" {
			return c.next, nil
		}
		return c.named(period)
	})
	if err != nil {
		return nil, err
	}
	if d.closed != nil {
		kept, err := s.GetStatement(ctx, &quotav1.GetStatementRequest{Tenant: tenant, Period: d.closed.Period.Name})
		return kept.GetStatement(), err
	}
	if err := d.mayClose(s.now(), force); err != nil {
		return nil, err
	}
	kept := policy.Closed{Tenant: d.Tenant, Number: d.number, Period: d.period, Block: d.Block, Complete: d.complete, Billing: d.billing, Plans: d.plans}
	if !d.isComplete() || len(d.withheld) > 0 {
		kept.Forced = force
	}
	document, digest, err := d.Encode()
	if err != nil {
		return nil, err
	}
	kept.Document, kept.Digest = string(document), digest
	if kept, err = s.policy.CloseStatement(ctx, actor, kept, d.Carried(), d.Credits...); err != nil {
		return nil, err
	}
	return closedToProto(&kept)
}

// GetStatement is a statement as it was closed.
func (s *statementService) GetStatement(ctx context.Context, req *quotav1.GetStatementRequest) (*quotav1.GetStatementResponse, error) {
	c, err := s.policy.Statement(ctx, req.Tenant, req.Period)
	if err != nil {
		return nil, err
	}
	out, err := closedToProto(&c)
	return &quotav1.GetStatementResponse{Statement: out}, err
}

// ListStatements pages through a tenant's closed statements.
func (s *statementService) ListStatements(ctx context.Context, req *quotav1.ListStatementsRequest) (*quotav1.ListStatementsResponse, error) {
	n := int(req.PageSize)
	if n == 0 {
		n = wire.DefaultPage
	}
	list, err := s.policy.Statements(ctx, req.Tenant, wire.PageNumber(req.PageToken), n)
	if err != nil {
		return nil, err
	}
	resp := &quotav1.ListStatementsResponse{}
	for i := range list {
		c, err := closedToProto(&list[i])
		if err != nil {
			return nil, err
		}
		resp.Statements = append(resp.Statements, c)
	}
	if len(list) == n {
		resp.NextPageToken = wire.PageToken(list[n-1].Number)
	}
	return resp, nil
}

// course is where a tenant's periods stand.
type course struct {
	cycle  billing.Cycle
	closed []policy.Closed // newest first
	next   billing.Period  // the one to close next; none where it never pays
	home   policy.Household
	begins int64 // the first slot that it pays for
	pays   bool  // for any slot, its own or another's
}

func (s *statementService) course(ctx context.Context, sub *policy.Subscriber) (*course, error) {
	var closed []policy.Closed
	for before := int64(0); ; {
		page, err := s.policy.Statements(ctx, sub.ID, before, policy.MaxPage)
		if err != nil {
			return nil, err
		}
		closed = append(closed, page...)
		if len(page) < policy.MaxPage {
			break
		}
		before = page[len(page)-1].Number
	}
	home, err := s.policy.Household(ctx, sub.ID)
	if err != nil {
		return nil, err
	}
	return courseAfter(sub, home, closed)
}

// courseAfter is where a tenant's periods stand after its last statements. Before any, they begin with the first slot
// that it pays for, its own or a member's.
func courseAfter(sub *policy.Subscriber, home policy.Household, closed []policy.Closed) (*course, error) {
	c := &course{closed: closed, home: home}
	c.begins, c.pays = home.Begins(sub)
	var err error
	if c.cycle, err = sub.Cycle(); err != nil {
		return nil, err
	}
	if len(c.closed) == 0 {
		if c.pays {
			c.next = c.cycle.At(c.begins)
		}
		return c, nil
	}
	// It begins where the last one ended, wherever the edges are now: the rules of a time zone
	// change, and a gap would never be billed.
	last := c.closed[0].Period
	if c.next = c.cycle.At(last.To); c.next.Name <= last.Name {
		c.next = c.cycle.At(c.next.To)
	}
	c.next.From = last.To
	return c, nil
}

// named is a period by its name.
func (c *course) named(name string) (billing.Period, error) {
	if name == c.next.Name {
		return c.next, nil
	}
	return c.cycle.Named(name)
}

// at is the period that t is in.
func (c *course) at(t int64) billing.Period {
	if c.next.Has(t) {
		return c.next
	}
	return c.cycle.At(t)
}

// draft is a statement as of the newest block, and how far it can be trusted.
type draft struct {
	*billing.Statement
	closed   *policy.Closed // set instead of all else where the period is closed
	period   billing.Period
	next     billing.Period // the tenant's to be closed next
	number   int64          // of the next closed statement
	billing  string         // policy.Billing.Text that the period is by
	plans    int64          // policy.Closed.Plans
	complete time.Time
	lagging  []string
	withheld []ledger.Withheld
}

func (s *statementService) draft(ctx context.Context, tenant string, which func(*course, int64) (billing.Period, error)) (*draft, error) {
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
	d := &draft{period: in.Period, next: c.next, number: int64(len(c.closed)) + 1, billing: subscriber.Billing.Text(), plans: plansBefore(&subscriber, &c.home, in.Period.To), complete: sums.Complete, lagging: sums.Lagging}
	if d.withheld, err = s.withheld(ctx, in); err != nil {
		return nil, err
	}
	if d.Statement, err = billing.Rate(in); err != nil {
		return nil, statementError(err)
	}
	return d, nil
}

// plansBefore is policy.Closed.Plans.
func plansBefore(sub *policy.Subscriber, home *policy.Household, to int64) (n int64) {
	for _, of := range slices.Concat([]policy.Subscriber{*sub}, home.Members) {
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

// sameLedger refuses a ledger that has not the block that the last statement was made at: one that was
// restored, or is another's. What it has above that height is not what came since.
func (s *statementService) sameLedger(ctx context.Context, last *policy.Closed) error {
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

// usage reads what the statement is made of at the newest block, and the prices of it. Hours
// that nothing divides are read whole, from roll-ups: so are all but a few of a period.
func (s *statementService) usage(ctx context.Context, in *billing.Input) (ledger.SealedSums, error) {
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
		// Of the versions that usage is of besides, none begins in the period; a policy that is
		// applied meanwhile does.
		divides := func(hour int64) bool { return !slices.Contains(cut, hour) }
		if err != nil || !slices.ContainsFunc(in.Divided(), divides) {
			return sums, err
		}
	}
}

func (s *statementService) sealed(ctx context.Context, in *billing.Input, shadows, cut []int64) (ledger.SealedSums, error) {
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
	// Earlier periods are read from the first that late usage is of, at the same block.
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

// toProto encodes the statement: these bytes are what its digest is of.
func (d *draft) toProto() (*quotav1.Statement, error) {
	document, digest, err := d.Encode()
	if err != nil {
		return nil, err
	}
	out := &quotav1.Statement{
		Tenant: d.Tenant, Period: d.period.Name, FromMs: 1000 * d.period.From, ToMs: 1000 * d.period.To,
		Height: d.Block.Height, BlockHash: d.Block.Hash, Document: string(document), Digest: digest,
		CompleteThroughMs: rpc.Millis(d.complete), Lagging: d.lagging,
	}
	out.Totals = totalsToProto(d.Statement)
	out.QuarantinedRows, out.QuarantinedUnits = quarantinedOf(d.Statement)
	return out, nil
}

// closedToProto is a statement as it was closed; in lists it has no document.
func closedToProto(c *policy.Closed) (*quotav1.Statement, error) {
	out := &quotav1.Statement{
		Tenant: c.Tenant, Period: c.Period.Name, FromMs: 1000 * c.Period.From, ToMs: 1000 * c.Period.To, Height: c.Block.Height, BlockHash: c.Block.Hash,
		Document: c.Document, Digest: c.Digest, CompleteThroughMs: rpc.Millis(c.Complete),
		Number: c.Number, ClosedMs: rpc.Millis(c.At), ClosedBy: c.Actor, Forced: c.Forced,
	}
	if c.Document != "" {
		s, err := billing.Decode([]byte(c.Document), c.Digest)
		if err != nil {
			return nil, fmt.Errorf("statement %d of tenant %s: %w", c.Number, c.Tenant, err)
		}
		out.Totals = totalsToProto(s)
		out.QuarantinedRows, out.QuarantinedUnits = quarantinedOf(s)
	}
	return out, nil
}

func totalsToProto(s *billing.Statement) (all []*quotav1.StatementTotal) {
	for _, t := range s.Totals {
		all = append(all, &quotav1.StatementTotal{
			Currency: t.Currency, Amount: t.Total, Text: billing.Money{Amount: t.Total, Currency: t.Currency}.String(),
		})
	}
	return all
}

func quarantinedOf(s *billing.Statement) (rows, units int64) {
	if q := s.Quarantined; q != nil {
		return q.Rows, q.Units
	}
	return 0, 0
}

// statementError gives billing's errors the names that cross the wire.
func statementError(err error) error {
	if errors.Is(err, billing.ErrPeriod) || errors.Is(err, billing.ErrAmount) {
		return fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	return err
}
