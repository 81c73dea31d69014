package ask

import (
	"errors"
	"os"
	"testing"
	"time"
)

// Who does not read holds a line that is Direct for a bounded time: then Send fails.
func TestWhoDoesNotReadIsLeft(t *testing.T) {
	_, server := twoEnds(t.Context(), t)
	if _, err := server.Direct(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Free)
	d := server.conn.(*direct)
	if d.unread != unreadWait {
		t.Errorf("it waits for %s, want %s", d.unread, unreadWait)
	}
	d.unread = 50 * time.Millisecond
	f := framed(1)
	for !f.Full() {
		f.Ask(&Question{ID: 2, Units: 1})
	}
	failed := make(chan error, 1)
	go func() {
		for {
			if err := server.Send(f); err != nil {
				failed <- err
				return
			}
		}
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want %v", err, os.ErrDeadlineExceeded)
		}
	case <-time.After(10 * time.Second):
		_ = server.Close()
		t.Fatalf("it waits still, and ends with %v", <-failed)
	}
}
