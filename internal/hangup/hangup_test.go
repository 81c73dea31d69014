//go:build unix

package hangup

import (
	"bytes"
	"log/slog"
	"os"
	"syscall"
	"testing"
)

// lines sends each line of a log on.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(bytes.TrimSpace(b))
	return len(b), nil
}

// A process that does not outlive it is killed by the first.
func TestOutlive(t *testing.T) {
	said := make(lines)
	stop := Outlive(slog.New(slog.NewTextHandler(said, nil)))
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if line := <-said; !bytes.Contains([]byte(line), []byte("SIGHUP is ignored")) {
			t.Errorf("got %q, want that SIGHUP is ignored", line)
		}
	}
	stop()
}
