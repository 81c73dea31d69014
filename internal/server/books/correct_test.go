package books

import (
	"errors"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/server/servertest"
	"github.com/f4ee788f/quota/internal/server/statements"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Keys of the ledger's own corrections are the caller's mistake, whatever the correction is.
func TestCorrectionsOfTheLedgersOwnKeys(t *testing.T) {
	b := servertest.NewStores(t, servertest.OnSQLite)
	b.Settle("gw", b.At, 100, b.At)
	s := &Service{books: b.Books, policy: b.Policy, versions: statements.New(b.Books, b.Policy, b.Now)}
	row := &quotav1.LedgerRow{SlotMs: b.At.UnixMilli(), Tenant: "acme", Limit: "requests", Meter: "requests", PolicyVersion: 1, Admitted: 5}
	for _, key := range []string{"revert/1", "release/1"} {
		_, adjusted := s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: key, Reason: "r", Units: -3, EntryHeight: 1})
		_, filled := s.Backfill(servertest.AsAnn(t.Context()), &quotav1.BackfillRequest{IdempotencyKey: key, Reason: "r", Rows: []*quotav1.LedgerRow{row}})
		for what, err := range map[string]error{"adjust": adjusted, "backfill": filled} {
			if !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), "the ledger's own") {
				t.Errorf("%s with the key %s: got %v, want ErrInvalid", what, key, err)
			}
		}
	}
	if _, err := s.Adjust(servertest.AsAnn(t.Context()), &quotav1.AdjustRequest{IdempotencyKey: "reverted", Reason: "r", Units: -3, EntryHeight: 1}); err != nil {
		t.Errorf("a key of the caller's: %v", err)
	}
}
