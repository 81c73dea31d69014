package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long these tests wait for what must come: all that they run shares a machine with whatever else it does.
const patience = time.Minute

// binaries is the directory of the programs, once they are built.
var binaries string

// build makes the programs once per test binary, as `make build` does.
var build = sync.OnceValue(func() (err error) {
	if binaries, err = os.MkdirTemp("", "quota-bin-"); err != nil {
		return err
	}
	out, err := exec.Command("go", "build", "-o", binaries+string(filepath.Separator),
		"github.com/f4ee788f/quota/cmd/quota-server", "github.com/f4ee788f/quota/cmd/quotactl", "github.com/f4ee788f/quota/loadtest").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// program is the path of one of them.
func program(t *testing.T, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binaries, name)
}

// process is a child that writes to a log of its own.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of its end; read after done

	mu  sync.Mutex
	log bytes.Buffer
}

// Write keeps what the child says.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start starts a program; it is killed at the end of the test if it runs still.
func start(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.Dir = t.TempDir()
	// Ends with this process, however that ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", name, last(p.said(), 4000))
		}
	})
	return p
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%s: %v: %v", p.name, s, err)
	}
}

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// terminate asks for a graceful end and fails the test unless it comes, without an
// error, within the time.
func (p *process) terminate(within time.Duration) {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("%s ended with %v", p.name, p.err)
		}
	case <-time.After(within):
		p.t.Errorf("%s has not ended within %v of SIGTERM", p.name, within)
	}
}

// until waits for a condition, the end of a process that must not end, or too long.
func until(t *testing.T, what string, within time.Duration, must *process, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-must.done:
			t.Fatalf("%s: %s ended: %v", what, must.name, must.err)
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, within)
		case <-tick.C:
		}
	}
}

func (p *process) waitSaid(word string, within time.Duration) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("%s says %q", p.name, word), within, p, func() bool { return strings.Contains(p.said(), word) })
}

func (p *process) waitReady(addr string, within time.Duration) {
	p.t.Helper()
	asker := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	until(p.t, p.name+" is ready", within, p, func() bool {
		answer, err := asker.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// address is a free port on loopback, to be bound more than once. It is none of those that the system gives to
// connections, nor of those that engines have: one might take it while nobody listens. The UDP port of the same number
// tells others of them that it is taken.
func address(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 11_000+rand.IntN(8_000))
		hold, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			t.Cleanup(func() { hold.Close() })
			return addr
		}
		hold.Close()
	}
	t.Fatal("no port is free")
	return ""
}
