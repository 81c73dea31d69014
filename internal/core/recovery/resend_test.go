package recovery

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// askedTwice becomes another ledger between the first question and the second.
type askedTwice struct {
	quotav1.LeaseServiceClient
	asked int
}

func (f *askedTwice) Frontiers(_ context.Context, req *quotav1.FrontiersRequest, _ ...grpc.CallOption) (*quotav1.FrontiersResponse, error) {
	f.asked++
	resp := &quotav1.FrontiersResponse{Ledger: "one"}
	seq := int64(5)
	if f.asked > 1 {
		resp.Ledger, seq = "another", 4
	}
	for _, e := range req.Epochs {
		resp.Frontiers = append(resp.Frontiers, &quotav1.Frontier{Epoch: e, Seq: seq})
	}
	return resp, nil
}

// More epochs than one question takes are all compared with the same ledger.
func TestALookIsAtOneLedger(t *testing.T) {
	said := make(map[ledger.Epoch]Reached)
	for e := range int64(wire.MaxEpochs + 1) {
		said[ledger.Epoch{Agent: "gw", Epoch: e + 1}] = Reached{5, 5}
	}
	a := Resender{Agent: "gw", API: &askedTwice{}, Log: slog.New(slog.DiscardHandler)}
	var r Resent
	behind, err := a.behind(t.Context(), said, &r)
	if err != nil || r.Ledger != "another" || len(behind) != len(said) {
		t.Errorf("of %q %d epochs are behind (%v), want all %d of another", r.Ledger, len(behind), err, len(said))
	}
}
