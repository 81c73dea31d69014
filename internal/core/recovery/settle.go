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

// Settle sends reports, and returns their receipts and the ledger's name.
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

// Reports go on under another epoch where theirs takes no more. No such epoch is given to two lives, and copies
// of a life that say the same take the same epoch. That nothing is settled twice does not rest on that: the
// ledger lets only one epoch go on from another (ledger.Origin).
//
//   - The remains of an ended life go on under the next number, never the clock's. Another copy of them is sent
//     as the same bytes under the same numbers, and all of it is acknowledged.
//   - A running life goes on at the clock's time, at least Stride later. So a twin with the same epoch gets
//     another, and the numbers between are left for the remains.
//   - The next life begins at least journal.Apart later.

// Stride exceeds the number of epochs that a life's remains ever go on under: each is one refusal by the
// ledger.
const Stride = 1 << 10

// LeftEpoch is the epoch under which a life's remaining reports go on.
func LeftEpoch(o *usage.Outbox) int64 { return o.State().Epoch + 1 }
