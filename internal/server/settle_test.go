package server

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/authn"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// An agent's last account is written before its last report is acknowledged: the server may be killed right after, and
// nobody would ever say it again.
func TestTheLastAccountIsWrittenAtOnce(t *testing.T) {
	w := &written{}
	tally, err := newTally(w, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s := &leaseService{ledger: kept{}, tally: tally, metrics: m, name: &ledgerName{ledger: kept{}}}
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
		if got := w.said.Spent; closed != (got == 7) {
			t.Errorf("closed %t: %d units are written", closed, got)
		}
	}
}
