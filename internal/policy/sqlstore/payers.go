package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// belowSQL are the tenants that $1 ever paid for.
const belowSQL = `WITH RECURSIVE below(id) AS (
		SELECT tenant FROM payers WHERE payer = $1 AND payer <> ''
		UNION
		SELECT p.tenant FROM payers p JOIN below b ON p.payer = b.id WHERE p.payer <> ''
	) `

func scanPayer(c *terms.PayerChange, rows *sql.Rows) error {
	return rows.Scan(&c.Tenant, &c.Number, &c.From, &c.Payer)
}

// payers collects changes, which come ordered by tenant and number.
func payers(rows *sql.Rows, err error) (terms.Payers, error) {
	all, err := collect(rows, err, "read payers", scanPayer)
	p := make(terms.Payers)
	for _, c := range all {
		p[c.Tenant] = append(p[c.Tenant], c)
	}
	return p, err
}

// payersAbove is who pays for tenants: their changes, and those of all tenants that ever were above them.
func (s *Store) payersAbove(ctx context.Context, q querier, ids []string) (terms.Payers, error) {
	return payers(q.QueryContext(ctx, `WITH RECURSIVE above(id) AS (
			SELECT tenant FROM payers WHERE `+s.among("tenant", "$1")+`
			UNION
			SELECT p.payer FROM payers p JOIN above a ON p.tenant = a.id WHERE p.payer <> ''
		) SELECT tenant, number, from_s, payer FROM payers WHERE tenant IN (SELECT id FROM above) ORDER BY tenant, number`, s.texts(ids)))
}

// payersBelow is who pays for a tenant, and for the tenants that it ever paid for.
func payersBelow(ctx context.Context, q querier, tenant string) (terms.Payers, error) {
	return payers(q.QueryContext(ctx, belowSQL+"SELECT tenant, number, from_s, payer FROM payers WHERE tenant = $1 OR tenant IN (SELECT id FROM below) ORDER BY tenant, number", tenant))
}

// Payers implements policystore.Store.
func (s *Store) Payers(ctx context.Context, tenant string) (terms.Payers, error) {
	return s.payersAbove(ctx, s.db, []string{tenant})
}

// Household implements policystore.Store.
func (s *Store) Household(ctx context.Context, tenant string) (terms.Household, error) {
	var h terms.Household
	var err error
	if h.Payers, err = payersBelow(ctx, s.db, tenant); err != nil {
		return h, err
	}
	var ids []string
	for id := range h.Payers {
		if id != tenant {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return h, nil
	}
	slices.Sort(ids)
	found, err := s.subscribers(ctx, ids)
	if err != nil {
		return h, err
	}
	for _, id := range ids {
		of := found[id]
		switch {
		case of == nil:
			continue
		case of.Err != nil:
			return h, of.Err
		}
		h.Members = append(h.Members, of.Subscriber)
	}
	return h, nil
}

// payerChange is a tenant whose payer may change now.
type payerChange struct {
	tenant string
	payer  string // its parent, or empty for itself
	from   int64  // Unix milliseconds, where the document says it; 0 for now
	is     bool   // it was there before
}

// payerOf is the payer by a tenant's row: its parent, or empty for itself.
func payerOf(parent string, b terms.Billing) string {
	if b.ParentPays {
		return parent
	}
	return ""
}

// changePayers notes who pays for tenants from now on, or from the given time. Closed periods stay as they were. So a
// change counts from the next slot, and not before the end of the last statement of either payer. It returns the
// changes in words.
func (t *tx) changePayers(ctx context.Context, actor string, all []payerChange) (said []string, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	var ids, asked []string
	for _, c := range all {
		ids = append(ids, c.tenant)
		asked = append(asked, c.tenant, c.payer)
	}
	before, err := t.s.payersAbove(ctx, t, asked)
	if err != nil {
		return nil, err
	}
	closed := make(map[string]int64) // through when, by payer
	through := func(payer string) error {
		if _, ok := closed[payer]; ok {
			return nil
		}
		last, ok, err := t.closedThrough(ctx, payer)
		if ok {
			closed[payer] = last.Unix()
		} else {
			closed[payer] = 0
		}
		return err
	}
	var rows [][]any
	for _, c := range all {
		now, from := terms.NextSlot(t.s.now()), terms.NextSlot(time.UnixMilli(c.from))
		if !c.is && from <= now {
			now, from = 0, 0 // nobody paid for it before
		}
		payer := c.payer
		if payer == "" {
			payer = c.tenant
		}
		if c.is {
			was, _ := before.At(c.tenant, now)
			next := c.tenant
			if c.payer != "" {
				next, _ = before.At(c.payer, now)
			}
			for _, of := range []string{was, next} {
				if err := through(of); err != nil {
					return nil, err
				}
				now = max(now, closed[of])
			}
		}
		for _, change := range before.Change(c.tenant, payer, now, from) {
			rows = append(rows, []any{change.Tenant, change.Number, change.From, change.Payer})
			who := change.Payer
			if who == "" {
				who = "itself"
			}
			if err := t.audit(actor, "tenant.payer", c.tenant, nil, map[string]any{"payer": who, "from": terms.Since(change.From)}); err != nil {
				return nil, err
			}
			if c.is {
				said = append(said, fmt.Sprintf("tenant %s: paid by %s %s", c.tenant, who, terms.Since(change.From)))
			}
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	if err := t.insert(ctx, "INSERT INTO payers (tenant, number, from_s, payer) VALUES ", "", rows); err != nil {
		return nil, unavailable("write payers", err)
	}
	return said, t.checkPayers(ctx, ids)
}

// checkPayers refuses payers in a circle, and one that pays for too many.
func (t *tx) checkPayers(ctx context.Context, ids []string) error {
	after, err := t.s.payersAbove(ctx, t, ids)
	if err != nil {
		return err
	}
	last := int64(1) << 60
	checked := make(map[string]bool)
	for _, id := range ids {
		if err := after.Check(id); err != nil {
			return err
		}
		payer, _ := after.At(id, last)
		if payer == id || checked[payer] {
			continue
		}
		checked[payer] = true
		below, err := payersBelow(ctx, t, payer)
		if err != nil {
			return err
		}
		members, ever := 0, 0
		for of := range below {
			if of == payer {
				continue
			}
			ever++
			if by, _ := below.At(of, last); by == payer {
				members++
			}
		}
		if members > terms.MaxMembers || ever > terms.MaxEverMembers {
			return fmt.Errorf("%w: tenant %s would pay for %d tenants, and have paid for %d; it may pay for %d at a time, and for %d over time",
				policystore.ErrInvalid, payer, members, ever, terms.MaxMembers, terms.MaxEverMembers)
		}
	}
	return nil
}

// closedOf is until when a tenant's usage after a time is on closed statements, whichever tenant paid for it. It is
// zero if none is.
func (t *tx) closedOf(ctx context.Context, tenant string, after time.Time) (through time.Time, err error) {
	p, err := t.s.payersAbove(ctx, t, []string{tenant})
	if err != nil {
		return through, err
	}
	for _, part := range p.Of(tenant) {
		if part.To <= after.Unix() {
			continue
		}
		closed, ok, err := t.closedThrough(ctx, part.Payer)
		if err != nil {
			return through, err
		}
		if last := time.Unix(part.To, 0); ok && closed.After(last) {
			closed = last
		}
		if ok && closed.Unix() > part.From && closed.After(through) {
			through = closed
		}
	}
	return through, nil
}
