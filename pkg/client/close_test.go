package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// closeAway closes a client whose server has gone away with 7 units unsettled, with a context that never ends.
func closeAway(t *testing.T, s *fake, opts ...Option) (took time.Duration, err error) {
	t.Helper()
	c := dial(t, s, opts...)
	if got := drive(c, 1, 7, tenant("a")); got != 7 {
		t.Fatalf("admitted %d of 7", got)
	}
	s.set(func(f *fake) { f.down = true })
	began := time.Now()
	err = c.Close(context.Background())
	return time.Since(began), err
}

// Close ends by itself where the server is away, and says that usage is lost, and how much.
func TestCloseHasABoundOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		opts []Option
		most time.Duration
	}{
		{nil, 10 * time.Second},
		{[]Option{WithCloseWait(3 * time.Second)}, 3 * time.Second},
	} {
		bubble(t, plans(1, requests(100, 1000)), func(t *testing.T, s *fake) {
			took, err := closeAway(t, s, c.opts...)
			if took > c.most {
				t.Errorf("Close took %v, want %v at most", took, c.most)
			}
			if !errors.Is(err, ErrUnsettled) || !strings.Contains(err.Error(), "7 units in 1 reports") || !strings.Contains(err.Error(), "are lost") {
				t.Errorf("Close: %v, want that 7 units in 1 report are lost", err)
			}
			if err != nil && !strings.Contains(err.Error(), "WithCloseWait") {
				t.Errorf("Close: %v, want whose time is over", err)
			}
		})
	}
}
