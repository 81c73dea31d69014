package rpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// A reader that takes nothing ends its stream; one that is only slow does not.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		slow := func(*quotav1.ExportBreakdownResponse) error { time.Sleep(Stall - time.Second); return nil }
		if err := Patient(t.Context(), slow)(nil); err != nil {
			t.Errorf("a slow one: %v", err)
		}
		stalled := func(*quotav1.ExportBreakdownResponse) error { <-ended; return nil }
		begun := time.Now()
		if err := Patient(t.Context(), stalled)(nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != Stall {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		gaveWay := errors.New("it gave way")
		ctx, giveWay := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { giveWay(gaveWay) })
		begun = time.Now()
		if err := Patient(ctx, stalled)(nil); !errors.Is(err, gaveWay) || time.Since(begun) != time.Second {
			t.Errorf("one that is to give way, after %s: %v", time.Since(begun), err)
		}
		close(ended)
	})
}
