//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// record keeps what is written, and can be read meanwhile.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// An agent outlives SIGHUP, says so, and settles all it admitted when SIGTERM comes.
func TestAgentOutlivesItsTerminal(t *testing.T) {
	server := startServer(t)
	socket := filepath.Join(t.TempDir(), "h")
	var log record
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"--server", server.GRPCAddr(), "--http-addr", "unix:" + socket, "--grpc-addr", ""}, io.Discard, &log)
	}()
	waitReady(t, socket)
	send := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGHUP)
	if !wait(t, time.Minute, nil, func() bool { return strings.Contains(log.String(), "SIGHUP is ignored") }) {
		t.Errorf("no word of SIGHUP in\n%s", &log)
	}
	if status, body := fetch(t, socket, "/healthz"); status != 200 {
		t.Errorf("after SIGHUP /healthz is %d %s", status, body)
	}
	send(syscall.SIGTERM)
	if got := <-code; got != 0 || !strings.Contains(log.String(), "settled all usage") {
		t.Errorf("after SIGTERM: exit %d, want 0 with all usage settled, in\n%s", got, &log)
	}
}
