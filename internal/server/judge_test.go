package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

// hung is a policy store that answers nobody.
type hung struct{ policy.Store }

func (hung) Version(ctx context.Context, _ int64) (policy.Version, error) {
	<-ctx.Done()
	return policy.Version{}, fmt.Errorf("%w: %w", policy.ErrUnavailable, ctx.Err())
}

func (hung) Tenants(ctx context.Context, _ []string) ([]limit.Tenant, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", policy.ErrUnavailable, ctx.Err())
}

// A policy store that hangs does not hold up intake for every row of a report.
func TestJudgeOfAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := NewJudge(hung{})
		begun := time.Now()
		for i := range 65_536 {
			if err := j.Accept(ledger.Row{Tenant: fmt.Sprint(i), Limit: "requests", Version: int64(i%9 + 1)}); err != nil {
				t.Fatalf("row %d: got %v, want it accepted", i, err)
			}
		}
		if took := time.Since(begun); took > judgeTimeout {
			t.Errorf("65,536 rows took %v, want at most %v", took, judgeTimeout)
		}
	})
}
