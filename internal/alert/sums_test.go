package alert

import (
	"context"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// chain is a ledger with one block: what was added since another is not told.
type chain struct {
	Usage
	block ledger.KeptBlockInfo
}

func (c chain) Added(_ context.Context, since ledger.KeptBlockInfo, _ int64, _ int) ([]ledger.AddedSum, bool, error) {
	return nil, since == c.block, nil
}

// What was kept of a ledger is not taken for another's, be it as high.
func TestSumsAreOfOneLedger(t *testing.T) {
	was, now := ledger.KeptBlockInfo{Height: 5}, ledger.KeptBlockInfo{Height: 5}
	now.Hash[0]++
	s := &sums{usage: chain{block: was}, now: time.Now}
	s.forget(was)
	s.kept["a"] = []*kept{{shape: "of a month"}}
	if _, told, err := s.advance(t.Context(), 5, was); !told || err != nil || len(s.kept) != 1 {
		t.Fatalf("at the same block: told %t, %v, %d kept", told, err, len(s.kept))
	}
	s.usage = chain{block: now}
	if _, told, err := s.advance(t.Context(), 5, now); told || err != nil || len(s.kept) != 0 || s.block != now {
		t.Errorf("at another block of that height: told %t, %v, %d kept, of %v", told, err, len(s.kept), s.block)
	}
}
