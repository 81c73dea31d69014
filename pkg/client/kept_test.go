package client

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func metered() *limit.Policy {
	return plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"})
}

func wantBilled(t *testing.T, s *fake, want int64, when string) {
	t.Helper()
	if got := s.billed(nil); got != want {
		t.Errorf("%s the ledger has %d units, %d were admitted", when, got, want)
	}
}

// taken copies a journal's directory as it is, which is what a kill of its process would leave.
func taken(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// end closes a client that cannot settle.
func end(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := c.Close(ctx); !errors.Is(err, ErrUnsettled) || !strings.Contains(err.Error(), "kept in the journal") {
		t.Errorf("Close: %v, want %v, kept in the journal", err, ErrUnsettled)
	}
}
