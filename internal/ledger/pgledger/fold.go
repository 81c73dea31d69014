package pgledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
)

// leaderLock is held by the fold under way, one for each schema. It belongs to its transaction: when a leader
// dies, the next fold of any server leads. The query also names the Postgres server. What is remembered of one
// need not be in another, which may have been promoted without the last commits.
const leaderLock = `SELECT pg_try_advisory_xact_lock(hashtextextended('quota.fold.' || current_schema(), 0)),
	pg_postmaster_start_time()::text || coalesce(inet_server_addr()::text, '')`

// Fold is ledger.Store's.
func (s *Store) Fold(ctx context.Context, now time.Time) (folded int, left bool, err error) {
	if _, _, err := s.room(ctx); err != nil {
		return 0, false, err // keeps partitions made ahead on a ledger that nobody reports to
	}
	s.folding.Lock()
	defer s.folding.Unlock()
	var newKeys []ledger.Key
	var newTouches []ledger.Touch
	var closed []ledger.Epoch
	err = s.write(ctx, func(tx pgx.Tx) error {
		folded, left, newKeys, newTouches, closed = 0, false, nil, nil, nil
		var leads bool
		var server string
		if err := tx.QueryRow(ctx, leaderLock).Scan(&leads, &server); err != nil || !leads {
			return err
		}
		if server != s.server {
			s.server = server
			s.keys, s.touches = ledger.NewSeen[ledger.Key](seenKeys), ledger.NewNotes(seenTouches)
		}
		sealing := ledger.NewSealing(s.touches)
		ids, more, err := ask(tx).Pending(ctx, sqlbooks.Postgres, s.halved, sealing)
		if err != nil {
			return err
		}
		corrections, err := ask(tx).Corrections(ctx, ledger.MaxSealed+1)
		if err != nil || len(ids)+len(corrections) == 0 {
			return err
		}
		if len(corrections) > ledger.MaxSealed {
			corrections, more = corrections[:ledger.MaxSealed], true
		}
		height, previous, err := ask(tx).LastBlock(ctx)
		if err != nil {
			return err
		}
		block, of, err := sealing.Seal(height, previous, corrections)
		if err != nil {
			return err
		}
		if newKeys, err = s.writeBlock(ctx, tx, &block, now); err != nil {
			return err
		}
		if newTouches, err = s.writeTouches(ctx, tx, of); err != nil {
			return err
		}
		if err := writeSettled(ctx, tx, of.Settled); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "DELETE FROM queue WHERE id = ANY($1)", ids)
		if err == nil && tag.RowsAffected() != int64(len(ids)) {
			err = fmt.Errorf("%w: %d reports left the queue, folded %d", ledger.ErrUnavailable, tag.RowsAffected(), len(ids))
		}
		folded, left, closed = len(ids)+len(corrections), more, of.Closed
		if err == nil && len(corrections) > 0 {
			_, err = tx.Exec(ctx, "DELETE FROM corrections_queue WHERE number = ANY($1)", ledger.Numbers(corrections))
		}
		return err
	})
	switch {
	case err == nil && !left:
		s.halved = 0
	case err != nil:
		if tooMuch(err) {
			s.halved = min(s.halved+1, ledger.MaxHalved)
		}
		return 0, false, err
	}
	for _, k := range newKeys {
		s.keys.Add(k)
	}
	for _, e := range closed {
		s.touches.Forget(e)
	}
	for _, t := range newTouches {
		s.touches.Add(t)
	}
	return folded, left, nil
}

// tooMuch reports whether a fold failed for how much it was: a timeout, of ours or
// one that the role has, or memory. The next folds less, until nothing is left: what
// once was too much would be again, for ever.
func tooMuch(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "57014" || pg.Code == "25P03" || strings.HasPrefix(pg.Code, "53") || strings.HasPrefix(pg.Code, "54")
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// writeBlock writes the block, its entries with the keys that are new, and moves the
// roll-ups. It returns all its keys.
func (s *Store) writeBlock(ctx context.Context, tx pgx.Tx, b *ledger.Block, now time.Time) ([]ledger.Key, error) {
	keys := make([]ledger.Key, len(b.Entries))
	months := make([]time.Time, len(b.Entries))
	fresh := map[ledger.Key]*ledger.Row{}
	for i := range b.Entries {
		e := &b.Entries[i]
		keys[i], months[i] = ledger.KeyOf(e), ledger.Month(e.Slot)
		if !s.keys.Has(keys[i]) {
			fresh[keys[i]] = e
		}
	}
	var batch pgx.Batch
	batch.Queue(sqlbooks.InsertBlock, sqlbooks.BlockArgs(b, now)...)
	queueKeys(&batch, fresh)
	if len(b.Entries) > 0 {
		queueRollups(&batch, ledger.Roll(b.Entries, keys))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"entries"},
		[]string{"month", "height", "n", "slot", "key", "admitted", "overage", "denied", "correction"},
		pgx.CopyFromSlice(len(b.Entries), func(i int) ([]any, error) {
			e := &b.Entries[i]
			return []any{months[i], b.Height, i, e.Slot, [16]byte(keys[i]), e.Admitted, e.Overage, e.Denied, b.Correction(i)}, nil
		}))
	return keys, err
}

// maxKeyBytes is how many names one statement writes: Postgres takes no message
// above 1 GB.
const maxKeyBytes = 16 << 20

func queueKeys(batch *pgx.Batch, fresh map[ledger.Key]*ledger.Row) {
	var keys [][16]byte
	var tenants, limits, meters, plans, attributes []string
	var versions []int64
	size := 0
	queue := func() {
		batch.Queue(`INSERT INTO keys (key, tenant, limit_name, meter, version, plan, attributes)
			SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[]) ON CONFLICT DO NOTHING`,
			keys, tenants, limits, meters, versions, plans, attributes)
		keys, tenants, limits, meters, versions, plans, attributes, size = nil, nil, nil, nil, nil, nil, nil, 0
	}
	// In the order of the index, which then grows page after page.
	for _, k := range slices.SortedFunc(maps.Keys(fresh), func(a, b ledger.Key) int { return bytes.Compare(a[:], b[:]) }) {
		r := fresh[k]
		keys = append(keys, k)
		tenants, limits, meters = append(tenants, r.Tenant), append(limits, r.Limit), append(meters, r.Meter)
		versions, plans, attributes = append(versions, r.Version), append(plans, r.Plan), append(attributes, r.Attributes)
		if size += len(r.Tenant) + len(r.Limit) + len(r.Meter) + len(r.Plan) + len(r.Attributes); size >= maxKeyBytes {
			queue()
		}
	}
	if len(keys) > 0 {
		queue()
	}
}

func queueRollups(batch *pgx.Batch, rolls []ledger.Rollup) {
	n := len(rolls)
	keys := make([][16]byte, n)
	hours, admitted, overage, denied := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, r := range rolls {
		keys[i], hours[i], admitted[i], overage[i], denied[i] = r.Key, r.Hour, r.Sum.Admitted, r.Sum.Overage, r.Sum.Denied
	}
	batch.Queue(`INSERT INTO rollups AS r (key, hour, admitted, overage, denied)
		SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
		`+sqlbooks.AddRollup("r"), keys, hours, admitted, overage, denied)
}

// writeTouches notes which epochs touched which tenants, and forgets those of epochs
// that closed. It returns the notes.
func (s *Store) writeTouches(ctx context.Context, tx pgx.Tx, of ledger.Folded) ([]ledger.Touch, error) {
	var notes []ledger.Touch
	var tenants, agents []string
	var epochs []int64
	for t := range of.Touched {
		notes = append(notes, t)
		tenants, agents, epochs = append(tenants, t.Tenant()), append(agents, t.Epoch().Agent), append(epochs, t.Epoch().Epoch)
	}
	var batch pgx.Batch
	if len(of.Closed) > 0 {
		agents, epochs := columns(of.Closed)
		batch.Queue(`DELETE FROM touched t USING unnest($1::text[], $2::bigint[]) AS c (agent, epoch)
			WHERE t.agent = c.agent AND t.epoch = c.epoch`, agents, epochs)
	}
	if len(notes) > 0 {
		// In one order with hold, so that neither waits for the other in a circle.
		batch.Queue(`INSERT INTO touched (tenant, agent, epoch) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS t (tenant, agent, epoch)
			ORDER BY tenant COLLATE "C", agent COLLATE "C", epoch ON CONFLICT DO NOTHING`, tenants, agents, epochs)
	}
	if batch.Len() == 0 {
		return nil, nil
	}
	return notes, tx.SendBatch(ctx, &batch).Close()
}

// writeSettled adds folded units to the accounts of their epochs.
func writeSettled(ctx context.Context, tx pgx.Tx, settled []ledger.SettledUnits) error {
	if len(settled) == 0 {
		return nil
	}
	n := len(settled)
	agents, limits, epochs, units := make([]string, n), make([]string, n), make([]int64, n), make([]int64, n)
	for i, s := range settled {
		agents[i], epochs[i], limits[i], units[i] = s.ID.Epoch.Agent, s.ID.Epoch.Epoch, s.ID.Limit, s.Units
	}
	_, err := tx.Exec(ctx, `INSERT INTO settled AS s (agent, epoch, limit_name, units)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])
		ON CONFLICT (agent, epoch, limit_name) DO UPDATE SET units = s.units + excluded.units`, agents, epochs, limits, units)
	return err
}
