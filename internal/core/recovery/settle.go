package recovery

import (
	"context"
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/usage"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var (
	// ErrUnsettled is wrapped where usage is left that the ledger has not acknowledged.
	ErrUnsettled = errors.New("client: usage not settled")
	// ErrJournal is wrapped by errors about the journal.
	ErrJournal = errors.New("client: journal")
)

const (
	SettleTimeout = 15 * time.Second // of a call: beyond what a ledger takes to fail over
	SettleRetry   = 5 * time.Second  // between calls, at most
	MaxSend       = 32               // reports of a call
	MaxSendBytes  = 8 << 20          // of payloads
)

// Settle sends reports, and returns what was said of each, and by which ledger.
func Settle(ctx context.Context, api quotav1.LeaseServiceClient, reports []ledger.Report, accounts *quotav1.LeaseAccounts) ([]ledger.Receipt, string, error) {
	req := &quotav1.SettleRequest{Accounts: accounts}
	for i := range reports {
		req.Reports = append(req.Reports, wire.ReportToProto(reports[i]))
	}
	resp, err := api.Settle(ctx, req)
	if err == nil {
		err = wire.CheckSettleResponse(req, resp)
	}
	if err != nil {
		return nil, "", err
	}
	receipts := make([]ledger.Receipt, len(resp.Receipts))
	for i, p := range resp.Receipts {
		receipts[i] = wire.ReceiptFromProto(p)
	}
	return receipts, resp.Ledger, nil
}

// Epochs under which reports go on, where the one that they were of takes no more, are chosen so that none is given to two
// lives, and copies of a life that say the same take the same. That nothing is settled twice does not rest on that: the
// ledger lets one epoch go on from another (ledger.Origin).
//
//   - what a life left goes on under the next number, never the clock's: whoever settles another copy of it sends the same
//     bytes under the same numbers, and all of it is acknowledged.
//   - a life that is alive goes on at the clock's time, that a twin which shares its epoch has another, and at least
//     Stride later, which leaves the numbers between to those who settle what it leaves.
//   - the next life begins journal.Apart later at least.

// Stride is more epochs than what a life left ever goes on under: each is one refusal by the ledger.
const Stride = 1 << 10

// LeftEpoch is what the reports that a life left go on under.
func LeftEpoch(o *usage.Outbox) int64 { return o.State().Epoch + 1 }
