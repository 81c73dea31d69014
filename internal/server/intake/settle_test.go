package intake

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/granted"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// An agent's last account is written before its last report is acknowledged: the server may be killed right after, and
// nobody would ever say it again.
func TestTheLastAccountIsWrittenAtOnce(t *testing.T) {
	w := &said{}
	tally, err := granted.NewTally(w, func(string) bool { return true }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Ledger: kept{}, Tally: tally, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for _, closed := range []bool{false, true} {
		number := int64(1)
		if closed {
			number = 2
		}
		r := ledger.NewReport("a", 1, number, 0, nil, 1, closed)
		if _, err := s.Settle(authn.WithPrincipal(t.Context(), authn.Principal{Open: true}), &quotav1.SettleRequest{
			Reports:  []*quotav1.Report{wire.ReportToProto(r)},
			Accounts: &quotav1.LeaseAccounts{Agent: "a", Epoch: 1, Number: number, Limits: []*quotav1.LeaseAccount{{Limit: "requests", Spent: 7}}},
		}); err != nil {
			t.Fatal(err)
		}
		if got := w.last.Spent; closed != (got == 7) {
			t.Errorf("closed %t: %d units are written", closed, got)
		}
	}
}

// A report whose digest is none goes to the ledger, which keeps it whole, and is unsealed there as well.
func TestABadDigestLeavesAReportUnsealed(t *testing.T) {
	var got []ledger.Report
	s, err := New(Config{Ledger: kept{got: &got}, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	p := wire.ReportToProto(ledger.NewReport("a", 1, 1, 0, nil, 1, false))
	p.Digest, p.Unsealed = []byte("short"), true
	req := &quotav1.SettleRequest{Reports: []*quotav1.Report{p}}
	if _, err := s.Settle(authn.WithPrincipal(t.Context(), authn.Principal{Open: true}), req); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || !got[0].Unsealed {
		t.Errorf("the ledger is given %+v, want a report that is unsealed", got)
	}
}

// kept is a ledger that takes every report.
type kept struct {
	ledger.Store
	got *[]ledger.Report // nil where nobody asks
}

func (k kept) Settle(_ context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	if k.got != nil {
		*k.got = append(*k.got, reports...)
	}
	receipts := make([]ledger.Receipt, len(reports))
	for i := range receipts {
		receipts[i].Status = ledger.Settled
	}
	return receipts, nil
}

func (kept) Standing(context.Context, []ledger.Epoch) (ledger.Standing, error) {
	return ledger.Standing{}, nil
}

// said is a ledger's books that keep what agents say.
type said struct {
	ledger.Books
	last ledger.Said
}

func (s *said) Record(_ context.Context, _ string, _ int64, accounts []ledger.Account) error {
	for _, a := range accounts {
		if a.Said != nil {
			s.last = *a.Said
		}
	}
	return nil
}
