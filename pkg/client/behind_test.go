//go:build linux

package client

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/session"
	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// Usage that finds no room among the rows that wait is not said to be settled: no report says that it is complete up to a
// time by which it was not collected. Once there is room it is billed, once.
func TestUsageThatFindsNoRoomIsSettledLater(t *testing.T) {
	unraced.Only(t) // of many rows, which the loop alone has
	bubble(t, metered(), func(t *testing.T, s *fake) {
		c := dial(t, s)
		admitted := drive(c, 1, 10, tenant("a"))
		c.session.Ask(func(l *session.Loop) {
			rows := make([]ledger.Row, usage.MaxRows)
			for i := range rows {
				rows[i].Slot, rows[i].Tenant = int64(i), "z"
			}
			u, before := l.Usage()
			through := func() int64 { _, at := l.Usage(); return at }
			u.Return(rows)
			time.Sleep(time.Second)
			l.Collect()
			if !u.Behind || through() != before || u.Rows() != usage.MaxRows {
				t.Errorf("without room: behind %v, complete through %d, %d rows; want behind, through %d still, %d rows", u.Behind, through(), u.Rows(), before, usage.MaxRows)
			}
			u.Take()
			l.Collect()
			if u.Behind || through() <= before || u.Rows() != 1 || u.Units() != admitted {
				t.Errorf("with room: behind %v, complete through %d, %d units in %d rows; want all of %d units in one, and through more than %d",
					u.Behind, through(), u.Units(), u.Rows(), admitted, before)
			}
		})
		shut(t, c)
		wantBilled(t, s, admitted, "closed")
	})
}
