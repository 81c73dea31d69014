package sqlbooks

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// recorderLife is how long the last record of a server is known, in milliseconds. A server that is silent for
// longer does not write its last record again.
const recorderLife = 24 * 3600 * 1000

// Record is ledger.Books'.
func (b *Books) Record(ctx context.Context, server string, number int64, accounts []ledger.Account) error {
	_, now, err := b.room(ctx)
	if err != nil {
		return err
	}
	// In one order, so that servers do not wait for one another in a circle.
	accounts = slices.Clone(accounts)
	slices.SortFunc(accounts, func(x, y ledger.Account) int { return x.ID.Compare(y.ID) })
	return b.write(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `INSERT INTO recorders (server, number, at_ms) VALUES ($1, $2, $3)
			ON CONFLICT (server) DO UPDATE SET number = excluded.number, at_ms = excluded.at_ms WHERE recorders.number < excluded.number`,
			server, number, now.UnixMilli())
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return err // it was written, and the answer was lost
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM recorders WHERE at_ms < $1", now.UnixMilli()-recorderLife); err != nil {
			return err
		}
		add, err := tx.PrepareContext(ctx, `INSERT INTO leases (agent, epoch, limit_name, granted, unrun, returned, spent,
				recorded_ms, said_number, said_granted, said_unrun, said_returned, said_told, said_spent, said_beyond, said_held, said_booked)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			ON CONFLICT (agent, epoch, limit_name) DO UPDATE SET granted = `+Added("leases", "granted")+", unrun = "+Added("leases", "unrun")+
			", returned = "+Added("leases", "returned")+", spent = "+Added("leases", "spent")+
			", recorded_ms = CASE WHEN excluded.recorded_ms > leases.recorded_ms THEN excluded.recorded_ms ELSE leases.recorded_ms END")
		if err != nil {
			return err
		}
		defer add.Close()
		say, err := tx.PrepareContext(ctx, `UPDATE leases SET said_number = $4, said_granted = $5, said_unrun = $6, said_returned = $7,
				said_told = $8, said_spent = $9, said_beyond = $10, said_held = $11, said_booked = $12
			WHERE agent = $1 AND epoch = $2 AND limit_name = $3 AND said_number < $4`)
		if err != nil {
			return err
		}
		defer say.Close()
		for i := range accounts {
			id, r, s := accounts[i].ID, accounts[i].Recorded, accounts[i].Said
			var err error
			at := int64(0)
			if r != (ledger.Recorded{}) {
				at = now.UnixMilli()
			}
			if !accounts[i].Claimed || at > 0 {
				_, err = add.ExecContext(ctx, id.Epoch.Agent, id.Epoch.Epoch, id.Limit, r.Granted, r.Unrun, r.Returned, r.Spent, at)
			}
			if err == nil && s != nil {
				_, err = say.ExecContext(ctx, id.Epoch.Agent, id.Epoch.Epoch, id.Limit, s.Number, s.Granted, s.Unrun, s.Returned, s.Told, s.Spent, s.Beyond, s.Held, s.Booked)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Reconcile is ledger.Books'.
func (b *Books) Reconcile(ctx context.Context, q ledger.ReconcileQuery) ([]ledger.Reconciled, error) {
	_, now, err := b.room(ctx)
	if err != nil {
		return nil, err
	}
	var found []ledger.Reconciled
	err = b.read(ctx, func(tx *sql.Tx) error {
		found, err = (&snapshot{b, tx, now}).reconcile(ctx, q)
		return err
	})
	return found, err
}

func (s *snapshot) reconcile(ctx context.Context, q ledger.ReconcileQuery) (found []ledger.Reconciled, err error) {
	rows, err := s.tx.QueryContext(ctx, `SELECT a.agent, a.epoch, a.limit_name, coalesce(f.state, ''),
			coalesce(l.granted, 0), coalesce(l.unrun, 0), coalesce(l.returned, 0), coalesce(l.spent, 0),
			coalesce(l.said_number, 0), coalesce(l.said_granted, 0), coalesce(l.said_unrun, 0), coalesce(l.said_returned, 0),
			coalesce(l.said_told, 0), coalesce(l.said_spent, 0), coalesce(l.said_beyond, 0), coalesce(l.said_held, 0), coalesce(l.said_booked, 0),
			coalesce(s.units, 0), coalesce(f.seen_ms, 0), `+succeeded+`
		FROM (SELECT agent, epoch, limit_name FROM leases UNION SELECT agent, epoch, limit_name FROM settled) AS a
		LEFT JOIN leases l ON l.agent = a.agent AND l.epoch = a.epoch AND l.limit_name = a.limit_name
		LEFT JOIN settled s ON s.agent = a.agent AND s.epoch = a.epoch AND s.limit_name = a.limit_name
		LEFT JOIN frontier f ON f.agent = a.agent AND f.epoch = a.epoch
		WHERE (a.agent, a.epoch, a.limit_name) > ($1, $2, $3) AND ($4 = '' OR a.agent = $4) AND (CAST($5 AS bigint) = 0 OR a.epoch = $5)
			AND (CAST($6 AS bigint) = 0 OR f.seen_ms >= $6)
		ORDER BY a.agent, a.epoch, a.limit_name LIMIT $7`,
		q.After.Epoch.Agent, q.After.Epoch.Epoch, q.After.Limit, q.Agent, q.Epoch, q.Since, q.N)
	if err := each(rows, err, func(rows *sql.Rows) error {
		r, err := scanReconciled(rows, s.now)
		found = append(found, r)
		return err
	}); err != nil {
		return nil, fmt.Errorf("read accounts: %w", err)
	}
	if err := addUnfolded(ctx, s, found); err != nil {
		return nil, err
	}
	return found, addOverdrawn(ctx, s, found)
}

// accountsPage is how many accounts a verification holds, a few hundred bytes each: a page takes the database as long
// as all of them.
const accountsPage = 50_000

// Accounts is ledger.Snapshot's.
func (s *snapshot) Accounts(ctx context.Context, do func(*ledger.Reconciled) error) error {
	q := ledger.ReconcileQuery{N: accountsPage}
	for {
		found, err := s.reconcile(ctx, q)
		if err != nil {
			return err
		}
		for i := range found {
			if err := do(&found[i]); err != nil {
				return err
			}
		}
		if len(found) < q.N {
			return nil
		}
		q.After = found[len(found)-1].ID
	}
}

func scanReconciled(rows *sql.Rows, now time.Time) (r ledger.Reconciled, err error) {
	var s ledger.Said
	var f ledger.Frontier
	err = rows.Scan(&r.ID.Epoch.Agent, &r.ID.Epoch.Epoch, &r.ID.Limit, &f.State,
		&r.Recorded.Granted, &r.Recorded.Unrun, &r.Recorded.Returned, &r.Recorded.Spent,
		&s.Number, &s.Granted, &s.Unrun, &s.Returned, &s.Told, &s.Spent, &s.Beyond, &s.Held, &s.Booked, &r.Settled, &f.Seen, &f.Succeeded)
	r.State = f.StateAt(now)
	if s.Number > 0 {
		r.Said = &s
	}
	return r, err
}

// maxOverdrawnScan bounds the rows in quarantine that a page of accounts looks through, for servers ask every ten
// seconds.
const maxOverdrawnScan = 100_000

// addOverdrawn notes the units in quarantine for exceeding the grants.
func addOverdrawn(ctx context.Context, s *snapshot, found []ledger.Reconciled) error {
	if len(found) == 0 {
		return nil
	}
	at := make(map[ledger.AccountID]int, len(found))
	for i := range found {
		at[found[i].ID] = i
	}
	first, last := found[0].ID.Epoch, found[len(found)-1].ID.Epoch
	rows, err := s.tx.QueryContext(ctx, `SELECT q.agent, q.epoch, q.body FROM (SELECT id, agent, epoch, reason, body FROM quarantine
			WHERE (agent, epoch) >= ($1, $2) AND (agent, epoch) <= ($3, $4) ORDER BY agent, epoch, seq, row_number LIMIT $5) AS q
		LEFT JOIN resolutions r ON r.quarantined = q.id WHERE q.reason LIKE '`+ledger.OverdrawnPrefix+`%' AND r.quarantined IS NULL LIMIT $6`,
		first.Agent, first.Epoch, last.Agent, last.Epoch, maxOverdrawnScan, maxOverdrawn)
	err = each(rows, err, func(rows *sql.Rows) error {
		var id ledger.AccountID
		var body []byte
		if err := rows.Scan(&id.Epoch.Agent, &id.Epoch.Epoch, &body); err != nil {
			return err
		}
		kept, err := ledger.DecodeRows(body)
		for j := range kept {
			id.Limit = kept[j].Limit
			if i, ok := at[id]; ok {
				found[i].Overdrawn += kept[j].Admitted
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read quarantine: %w", err)
	}
	return nil
}

// addUnfolded adds unfolded reports to what is settled.
func addUnfolded(ctx context.Context, s *snapshot, found []ledger.Reconciled) error {
	if len(found) == 0 {
		return nil
	}
	at := map[ledger.AccountID]int{}
	epochs := map[ledger.Epoch]bool{}
	for i := range found {
		at[found[i].ID], epochs[found[i].ID.Epoch] = i, true
	}
	// Within an epoch reports are folded in their order: what is queued is one run.
	var runs []ledger.Source
	first, last := found[0].ID.Epoch, found[len(found)-1].ID.Epoch
	rows, err := s.tx.QueryContext(ctx, `SELECT agent, epoch, min(seq), max(seq) FROM queue
		WHERE (agent, epoch) >= ($1, $2) AND (agent, epoch) <= ($3, $4) GROUP BY agent, epoch`, first.Agent, first.Epoch, last.Agent, last.Epoch)
	if err := each(rows, err, func(rows *sql.Rows) error {
		var run ledger.Source
		err := rows.Scan(&run.Epoch.Agent, &run.Epoch.Epoch, &run.First, &run.Last)
		if epochs[run.Epoch] {
			runs = append(runs, run)
		}
		return err
	}); err != nil {
		return fmt.Errorf("read the queue: %w", err)
	}
	for _, run := range runs {
		err := s.Sources(ctx, []ledger.Source{run}, func(p *ledger.Pending) error {
			settled, err := p.Settled()
			for _, a := range settled {
				if i, ok := at[a.ID]; ok {
					found[i].Settled += a.Units
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Settled is ledger.Snapshot's.
func (s *snapshot) Settled(ctx context.Context, do func(ledger.SettledUnits) error) error {
	rows, err := s.tx.QueryContext(ctx, "SELECT agent, epoch, limit_name, units FROM settled ORDER BY agent, epoch, limit_name")
	return each(rows, err, func(rows *sql.Rows) error {
		var a ledger.SettledUnits
		if err := rows.Scan(&a.ID.Epoch.Agent, &a.ID.Epoch.Epoch, &a.ID.Limit, &a.Units); err != nil {
			return err
		}
		return do(a)
	})
}
