package bubbled

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// Many that connect at once, to two servers, are all connected. Without its guard the race detector ends this test, and all others of the package.
func TestManyDialAtOnce(t *testing.T) {
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			d := NewDialing()
			listeners := []*bufconn.Listener{bufconn.Listen(1), bufconn.Listen(1)}
			for _, l := range listeners {
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						_ = c.Close()
					}
				}()
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for range 20 {
						c, err := d.To(listeners[i%2])(t.Context(), "")
						if err != nil {
							t.Error(err)
							return
						}
						_ = c.Close()
					}
				})
			}
			all.Wait()
			for _, l := range listeners {
				_ = l.Close()
			}
		})
	}
}

// Who waits to dial, behind one whom nobody accepts, gives up when its time is over.
func TestDialGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l := NewDialing(), bufconn.Listen(1)
		defer l.Close()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := d.Dial(ctx, l); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
					t.Errorf("after %v: %v, want a second and %v", time.Since(began), err, context.DeadlineExceeded)
				}
			})
		}
		all.Wait()
	})
}
