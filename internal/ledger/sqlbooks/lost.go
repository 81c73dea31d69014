package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
)

// DeclareLost is ledger.Books'.
func (b *Books) DeclareLost(ctx context.Context, actor, reason string, e ledger.Epoch) (state ledger.AgentState, err error) {
	if err := ledger.CheckReason(reason); err != nil {
		return state, err
	}
	err = b.change(ctx, actor, func(ch *change) error {
		// The row is locked by being written: a report that is being settled comes before
		// or after, and in both cases it is seen.
		var f ledger.Frontier
		err := scanFrontier(&f, ch.QueryRowContext(ctx, "UPDATE frontier SET seq = seq WHERE agent = $1 AND epoch = $2 RETURNING "+frontierColumns,
			e.Agent, e.Epoch).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: agent %s has no epoch %d", ledger.ErrNotFound, e.Agent, e.Epoch)
		}
		if err != nil {
			return err
		}
		switch f.State {
		case ledger.StateLost, ledger.StateGone:
		case ledger.StateOpen, ledger.StateFenced:
			before := map[string]any{"state": f.State, "why": f.Reason}
			if f.State == ledger.StateOpen {
				f.State, f.Reason = ledger.StateLost, reason
			} else {
				f.State = ledger.StateGone // why it is fenced stays
			}
			if _, err := ch.ExecContext(ctx, "UPDATE frontier SET state = $1, reason = $2 WHERE agent = $3 AND epoch = $4",
				f.State, f.Reason, e.Agent, e.Epoch); err != nil {
				return err
			}
			err = ch.audit(ctx, "agent.lost", e.String(), before, map[string]any{"state": f.State, "reason": reason, "reports": f.Seq, "units": f.Total, "through_ms": f.Through})
		default:
			return fmt.Errorf("%w: epoch %s is %s", ledger.ErrTaken, e, f.State)
		}
		state = f.Agent(time.UnixMilli(ch.now))
		return err
	})
	return state, err
}
