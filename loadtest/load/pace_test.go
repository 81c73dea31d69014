package load

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPaceKeepsTheRate(t *testing.T) {
	for _, rate := range []int64{1, 7, 1000, 50_000} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			total := 0
			start := time.Now()
			p, q := newPace(rate, 0, 2, start), newPace(rate, 1, 2, start)
			if got := int64(p.rate + q.rate); got != rate {
				t.Fatalf("two halves of %d: got %d", rate, got)
			}
			p.rate = float64(rate)
			for ctx.Err() == nil {
				total += p.wait(ctx)
			}
			if want := int(rate) * 10; total < want-turn-1 || total > want+1 {
				t.Errorf("rate %d: got %d requests in ten seconds, want %d", rate, total, want)
			}
		})
	}
}

// A worker that was held up for a second catches up on a tenth of it.
func TestPaceForgetsAStall(t *testing.T) {
	p := newPace(1000, 0, 1, time.Now())
	got := 0
	for range 10 {
		got += p.take(time.Second)
	}
	if got != 100 {
		t.Errorf("after a stall of a second: got %d requests, want 100", got)
	}
	if n := p.take(time.Second / 2); n != 0 {
		t.Errorf("the clock stepped back: got %d requests, want 0", n)
	}
}
