package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Wrap(m)) }

// stdout returns what f prints.
func stdout(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdout
	os.Stdout = w
	out := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(r)
		out <- string(data)
	}()
	f()
	os.Stdout = was
	if err := errors.Join(w.Close()); err != nil {
		t.Fatal(err)
	}
	text := <-out
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestVersionAndHelp(t *testing.T) {
	if got := stdout(t, func() {
		if err := run(t.Context(), func() {}, []string{"--version"}); err != nil {
			t.Error(err)
		}
	}); !strings.HasPrefix(got, "quota-server ") {
		t.Errorf("--version printed %q", got)
	}
	for _, args := range [][]string{{"--help"}, {"migrate", "--help"}, {"retain", "--help"}} {
		if err := run(t.Context(), func() {}, args); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%v: got %v, want help", args, err)
		}
		if got := stdout(t, help); !strings.Contains(got, "--ledger-owner-url URL   (QUOTA_LEDGER_OWNER_URL)\n") {
			t.Errorf("%v printed %q, want the flags", args, got)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, c := range []struct {
		args   []string
		want   string
		misuse bool // told from what fails later: another exit code, and a word of --help
	}{
		{[]string{"--nope"}, "nope", true},
		{[]string{"serve"}, "unexpected argument", true},
		{[]string{"--ledger", "mysql://x"}, "--ledger", true},
		{[]string{"--http-addr", "127.0.0.1:99999"}, "--http-addr", true},
		{[]string{"--policy", "/does/not/exist.yaml", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--data-dir", t.TempDir()}, "--policy", false},
		{[]string{"migrate"}, "--ledger-owner-url", true},
		{[]string{"migrate", "--ledger-owner-url", "mysql://x"}, "write postgres://", true},
		{[]string{"migrate", "now"}, "unexpected argument", true},
		{[]string{"retain"}, "--archive is needed", true},
		{[]string{"retain", "now"}, "unexpected argument", true},
		{[]string{"retain", "--archive", "x"}, "--before or --keep", true},
		{[]string{"retain", "--archive", "x", "--keep", "13", "--before", "2025-11"}, "--before or --keep", true},
		{[]string{"retain", "--archive", "x", "--keep", "1"}, "it must be 2 to 600", true},
		{[]string{"retain", "--archive", "x", "--before", "November"}, "write a month, such as 2025-11", true},
		{[]string{"retain", "--archive", "x", "--check", "--keep", "13"}, "--check goes with --archive alone", true},
		{[]string{"retain", "--archive", "x", "--keep", "13", "--timeout", "0s"}, "--timeout", true},
		{[]string{"retain", "--archive", "x", "--keep", "13", "--ledger-owner-url", "mysql://x"}, "write postgres://", true},
		{[]string{"retain", "--archive", "x", "--keep", "13", "--ledger", "postgres://x"}, "--ledger-owner-url is needed", false},
		{[]string{"retain", "--archive", "x", "--keep", "13", "--data-dir", "/does/not/exist"}, "there is no ledger", false},
		{[]string{"migrate", "--ledger-owner-url", "postgres://nobody@127.0.0.1:1/none", "--timeout", "2s"}, "migrations", false},
	} {
		err := run(t.Context(), func() {}, c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want an error that names %q", c.args, err, c.want)
		}
		if got := errors.As(err, new(misuse)); got != c.misuse {
			t.Errorf("%v: misuse %v, want %v", c.args, got, c.misuse)
		}
	}
}

// untilServing returns an address to serve HTTP on, and a context that ends once somebody does: a server that is told to stop
// while it brings its database up to date ends with an error, and on a busy machine that takes its time.
func untilServing(t *testing.T) (context.Context, string) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	go func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
		for ctx.Err() == nil {
			if got, err := client.Get("http://" + addr + "/healthz"); err == nil {
				_ = got.Body.Close()
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return ctx, addr
}

// Embedded, from nothing, until it is told to stop.
func TestServe(t *testing.T) {
	ctx, addr := untilServing(t)
	err := run(ctx, func() {}, []string{"--grpc-addr", "127.0.0.1:0", "--http-addr", addr, "--data-dir", t.TempDir(), "--log-level", "error"})
	if err != nil {
		t.Errorf("serving until it was told to stop: got %v", err)
	}
}

// A server outlives SIGHUP: the test would be killed by it.
func TestServerOutlivesItsTerminal(t *testing.T) {
	serving, addr := untilServing(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, func() {}, []string{"--grpc-addr", "127.0.0.1:0", "--http-addr", addr, "--data-dir", t.TempDir(), "--log-level", "error"})
	}()
	<-serving.Done()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	if got, err := client.Get("http://" + addr + "/healthz"); err != nil {
		t.Errorf("after SIGHUP: %v", err)
	} else if _ = got.Body.Close(); got.StatusCode != http.StatusOK {
		t.Errorf("after SIGHUP: got %s", got.Status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// migrate brings an empty database up to date, again and again.
func TestMigrate(t *testing.T) {
	pg := testenv.Postgres(t)
	for range 2 {
		if got := stdout(t, func() {
			if err := run(t.Context(), func() {}, []string{"migrate", "--ledger-owner-url", pg.OwnerURL()}); err != nil {
				t.Error(err)
			}
		}); !strings.Contains(got, "up to date") {
			t.Errorf("migrate printed %q", got)
		}
	}
}
