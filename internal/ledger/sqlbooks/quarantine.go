package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Quarantine is ledger.Books'.
func (b *Books) Quarantine(ctx context.Context, q ledger.QuarantineQuery) ([]ledger.KeptRow, error) {
	where := "WHERE q.id > $1"
	args := []any{q.After, max(1, min(q.N, maxPage))}
	if !q.All {
		where += " AND r.quarantined IS NULL"
	}
	if q.Agent != "" {
		where += " AND q.agent = $3"
		args = append(args, q.Agent)
	}
	var found []ledger.KeptRow
	size := 0
	err := b.eachKept(ctx, b.db, func(k *ledger.KeptRow) error {
		found = append(found, *k)
		if size += k.Size(); size >= ledger.MaxKeptPage {
			return errPageFull
		}
		return nil
	}, where+" ORDER BY q.id LIMIT $2", args...)
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return found, b.classify(err)
}

// errPageFull ends a page of what is in quarantine.
var errPageFull = errors.New("the page is full")

func (b *Books) quarantine(ctx context.Context, q querier, where string, args ...any) (all []ledger.KeptRow, err error) {
	err = b.eachKept(ctx, q, func(k *ledger.KeptRow) error {
		all = append(all, *k)
		return nil
	}, where, args...)
	return all, err
}

func (b *Books) eachKept(ctx context.Context, q querier, do func(*ledger.KeptRow) error, where string, args ...any) error {
	rows, err := q.QueryContext(ctx, `SELECT q.id, q.agent, q.epoch, q.seq, q.row_number, q.reason, q.body, q.stored_ms,
			r.quarantined IS NOT NULL, coalesce(r.correction, 0), coalesce(r.reason, ''), coalesce(r.actor, ''), coalesce(r.at_ms, 0)
		FROM quarantine q LEFT JOIN resolutions r ON r.quarantined = q.id `+where, args...)
	return each(rows, err, func(rows *sql.Rows) error {
		var k ledger.KeptRow
		var resolved bool
		var r ledger.Resolution
		var stored, at int64
		err := rows.Scan(&k.ID, &k.Of.Epoch.Agent, &k.Of.Epoch.Epoch, &k.Of.Seq, &k.Row, &k.Reason, &k.Body, &stored,
			&resolved, &r.Correction, &r.Reason, &r.Actor, &at)
		k.Quarantined.ID, k.Stored = k.Of, time.UnixMilli(stored).UTC()
		if resolved {
			r.At = time.UnixMilli(at).UTC()
			k.Resolution = &r
		}
		if err != nil {
			return err
		}
		return do(&k)
	})
}

// fill brings a row's body from its report where quarantine did not keep it.
func fill(ctx context.Context, q querier, k *ledger.KeptRow) error {
	if len(k.Body) > 0 || k.Row < 0 {
		return nil
	}
	var payload []byte
	err := q.QueryRowContext(ctx, "SELECT payload FROM reports WHERE agent = $1 AND epoch = $2 AND seq = $3",
		k.Of.Epoch.Agent, k.Of.Epoch.Epoch, k.Of.Seq).Scan(&payload)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	rows, err := ledger.DecodeRows(payload)
	if err == nil && k.Row < len(rows) {
		k.Body = ledger.EncodeRows(rows[k.Row : k.Row+1])
	}
	return err
}

// Kept is ledger.Books'.
func (b *Books) Kept(ctx context.Context, id int64) (k ledger.KeptRow, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		found, err := b.quarantine(ctx, tx, "WHERE q.id = $1", id)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: nothing in quarantine is %d", ledger.ErrNotFound, id)
		}
		if err != nil {
			return err
		}
		k = found[0]
		return fill(ctx, tx, &k)
	})
	return k, err
}

// unresolved are the rows of those ids, each once, none of them resolved.
func (b *Books) unresolved(ctx context.Context, q querier, ids []int64) ([]ledger.KeptRow, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 || len(ids) > ledger.MaxResolved {
		return nil, fmt.Errorf("%w: it is of %d rows; 1 to %d at a time", ledger.ErrCorrection, len(ids), ledger.MaxResolved)
	}
	found, err := b.quarantine(ctx, q, "WHERE q.id IN ("+list(ids)+") ORDER BY q.id")
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		switch {
		case i >= len(found) || found[i].ID != id:
			return nil, fmt.Errorf("%w: nothing in quarantine is %d", ledger.ErrNotFound, id)
		case found[i].Resolution != nil && found[i].Resolution.Correction != 0:
			return nil, fmt.Errorf("%w: %d was released by correction %d", ledger.ErrTaken, id, found[i].Resolution.Correction)
		case found[i].Resolution != nil:
			return nil, fmt.Errorf("%w: %d was discarded by %s", ledger.ErrTaken, id, found[i].Resolution.Actor)
		}
	}
	return found, nil
}

// Retry is ledger.Books'.
func (b *Books) Retry(ctx context.Context, actor, reason string, ids []int64) (ledger.Retried, error) {
	var done ledger.Retried
	rules, err := b.rules(ctx)
	if err != nil {
		return done, err
	}
	var kept []ledger.KeptRow
	err = b.read(ctx, func(tx *sql.Tx) error {
		if kept, err = b.unresolved(ctx, tx, ids); err != nil {
			return err
		}
		for i := range kept {
			if err := fill(ctx, tx, &kept[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return done, err
	}
	var rows []ledger.Row
	for i := range kept {
		k := &kept[i]
		if k.Row < 0 {
			return done, fmt.Errorf("%w: %d is a whole report that contradicts itself: bring in what is right of it by a backfill, and discard it", ledger.ErrCorrection, k.ID)
		}
		row, err := ledger.DecodeRows(k.Body)
		if err == nil && len(row) != 1 {
			err = errors.New("its report is not kept any more")
		}
		if err == nil {
			err = rules.Judge("", &row[0])
		}
		if err != nil {
			done.Refused = append(done.Refused, ledger.Refused{ID: k.ID, Reason: err.Error()})
			continue
		}
		done.Released = append(done.Released, k.ID)
		rows = append(rows, row[0])
	}
	if len(rows) == 0 {
		return done, nil
	}
	c, err := ledger.NewRelease(done.Released[0], rows, reason)
	if err != nil {
		return done, err
	}
	err = b.change(ctx, actor, func(ch *change) error {
		if _, err := b.unresolved(ctx, ch, done.Released); err != nil {
			return err
		}
		if c.Key, err = ch.free(ctx, c.Key); err != nil {
			return err
		}
		if err := ch.insert(ctx, &c); err != nil {
			return err
		}
		done.Correction = c.Number
		if err := ch.resolve(ctx, done.Released, c.Number, reason); err != nil {
			return err
		}
		return ch.corrected(ctx, "ledger.release", quarantined(done.Released), &c)
	})
	return done, err
}

// Discard is ledger.Books'.
func (b *Books) Discard(ctx context.Context, actor, reason string, ids []int64) error {
	if err := ledger.CheckReason(reason); err != nil {
		return err
	}
	return b.change(ctx, actor, func(ch *change) error {
		found, err := b.unresolved(ctx, ch, ids)
		if err != nil {
			return err
		}
		ids = ids[:0:0]
		for i := range found {
			ids = append(ids, found[i].ID)
		}
		if err := ch.resolve(ctx, ids, 0, reason); err != nil {
			return err
		}
		return ch.audit(ctx, "ledger.discard", quarantined(ids), map[string]any{"rows": len(ids), "because": becauseOf(found)},
			map[string]any{"reason": reason, "rows": len(ids), "discarded": true})
	})
}

// becauseOf is why rows are in quarantine, the first of each reason, maxTold at most.
func becauseOf(rows []ledger.KeptRow) (reasons []string) {
	for i := range rows {
		if r := rows[i].Reason; len(reasons) < maxTold && !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// quarantined names rows in the audit log.
func quarantined(ids []int64) string { return "quarantine " + list(ids[:min(len(ids), maxTold)]) }

// resolve says what became of rows.
func (c *change) resolve(ctx context.Context, ids []int64, correction int64, reason string) error {
	for _, id := range ids {
		if _, err := c.ExecContext(ctx, "INSERT INTO resolutions (quarantined, correction, reason, actor, at_ms) VALUES ($1, $2, $3, $4, $5)",
			id, correction, reason, c.actor, c.now); err != nil {
			return err
		}
	}
	return nil
}
