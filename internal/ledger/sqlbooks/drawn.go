package sqlbooks

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// maxOverdrawn bounds the rows in quarantine that are added up.
const maxOverdrawn = 10_000

// Drawn is ledger.Books'.
func (b *Books) Drawn(ctx context.Context, e ledger.Epoch) (d ledger.Drawn, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		d, err = (&snapshot{Books: b, tx: tx}).drawn(ctx, e)
		return err
	})
	return d, err
}

func (s *snapshot) drawn(ctx context.Context, e ledger.Epoch) (d ledger.Drawn, err error) {
	d.Limits = make(map[string]ledger.DrawnLimit)
	if err := s.tx.QueryRowContext(ctx, `SELECT coalesce((SELECT max(epoch) FROM leases WHERE agent = $1 AND epoch <= $2 AND (granted > 0 OR spent > 0)), $2),
			coalesce((SELECT min(epoch) FROM leases WHERE agent = $1 AND epoch > $2 AND (granted > 0 OR spent > 0)), 0)`, e.Agent, e.Epoch).Scan(&d.Root, &d.Next); err != nil {
		return d, fmt.Errorf("read leases: %w", err)
	}
	to := d.Next
	if to == 0 {
		to = math.MaxInt64
	}
	if err := s.tx.QueryRowContext(ctx, `SELECT coalesce(max(CASE WHEN epoch = $4 THEN total END), 0), coalesce(max(through_ms), 0) FROM frontier
			WHERE agent = $1 AND epoch >= $2 AND epoch < $3`, e.Agent, d.Root, to, e.Epoch).Scan(&d.Total, &d.Through); err != nil {
		return d, fmt.Errorf("read frontiers: %w", err)
	}
	if err := s.tx.QueryRowContext(ctx, "SELECT coalesce(max(recorded_ms), 0) FROM leases WHERE agent = $1 AND epoch = $2", e.Agent, d.Root).Scan(&d.Recorded); err != nil {
		return d, fmt.Errorf("read leases: %w", err)
	}
	rows, err := s.tx.QueryContext(ctx, `SELECT a.limit_name, coalesce(l.granted, 0), coalesce(l.unrun, 0), coalesce(l.returned, 0), coalesce(l.spent, 0), coalesce(s.units, 0)
		FROM (SELECT limit_name FROM leases WHERE agent = $1 AND epoch >= $2 AND epoch < $3
			UNION SELECT limit_name FROM settled WHERE agent = $1 AND epoch >= $2 AND epoch < $3) AS a
		LEFT JOIN leases l ON l.agent = $1 AND l.epoch = $2 AND l.limit_name = a.limit_name
		LEFT JOIN (SELECT limit_name, CAST(sum(units) AS bigint) AS units FROM settled WHERE agent = $1 AND epoch >= $2 AND epoch < $3 GROUP BY limit_name) AS s
			ON s.limit_name = a.limit_name
		ORDER BY a.limit_name LIMIT $4`, e.Agent, d.Root, to, ledger.MaxDrawnLimits)
	if err := each(rows, err, func(rows *sql.Rows) error {
		var name string
		var l ledger.DrawnLimit
		err := rows.Scan(&name, &l.Recorded.Granted, &l.Recorded.Unrun, &l.Recorded.Returned, &l.Recorded.Spent, &l.Settled)
		d.Limits[name] = l
		return err
	}); err != nil {
		return d, fmt.Errorf("read accounts: %w", err)
	}
	if err := s.drawnUnfolded(ctx, e.Agent, to, &d); err != nil {
		return d, err
	}
	n := 0
	rows, err = s.tx.QueryContext(ctx, `SELECT reason, body FROM quarantine WHERE agent = $1 AND epoch >= $2 AND epoch < $3 AND row_number >= 0
		LIMIT $4`, e.Agent, d.Root, to, maxOverdrawn)
	err = each(rows, err, func(rows *sql.Rows) error {
		var reason string
		var body []byte
		if err := rows.Scan(&reason, &body); err != nil {
			return err
		}
		n++
		d.Partial = d.Partial || n == maxOverdrawn || len(body) == 0 // that is in its report alone
		kept, err := ledger.DecodeRows(body)
		for i := range kept {
			l, ok := d.Limits[kept[i].Limit]
			if !ok {
				continue
			}
			l.Settled = max(l.Settled-kept[i].Admitted, 0)
			if strings.HasPrefix(reason, ledger.OverdrawnPrefix) {
				l.Overdrawn += kept[i].Admitted
			}
			d.Limits[kept[i].Limit] = l
		}
		return err
	})
	if err != nil {
		return d, fmt.Errorf("read quarantine: %w", err)
	}
	return d, nil
}

// drawnUnfolded adds the reports that are not folded yet.
func (s *snapshot) drawnUnfolded(ctx context.Context, agent string, to int64, d *ledger.Drawn) error {
	var runs []ledger.Source
	rows, err := s.tx.QueryContext(ctx, `SELECT epoch, min(seq), max(seq) FROM queue WHERE agent = $1 AND epoch >= $2 AND epoch < $3 GROUP BY epoch`, agent, d.Root, to)
	if err := each(rows, err, func(rows *sql.Rows) error {
		run := ledger.Source{Epoch: ledger.Epoch{Agent: agent}}
		err := rows.Scan(&run.Epoch.Epoch, &run.First, &run.Last)
		runs = append(runs, run)
		return err
	}); err != nil {
		return fmt.Errorf("read the queue: %w", err)
	}
	for _, run := range runs {
		if err := s.Sources(ctx, []ledger.Source{run}, func(p *ledger.Pending) error {
			settled, err := p.Settled()
			for _, a := range settled {
				l, ok := d.Limits[a.ID.Limit]
				if !ok && len(d.Limits) >= ledger.MaxDrawnLimits {
					continue
				}
				l.Settled += a.Units
				d.Limits[a.ID.Limit] = l
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
