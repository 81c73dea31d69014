package doors

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenOnASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o660 {
		t.Errorf("mode: got %o, want 660", got)
	}
	if _, err := Listen("unix:" + path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: got %v, want %v", err, syscall.EADDRINUSE)
	}
	// What a killed process leaves behind.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = Listen("unix:" + path)
	if err != nil {
		t.Fatalf("a dead socket is not replaced: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// A file of somebody else's is never removed.
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen("unix:" + path); err == nil {
		l.Close()
		t.Error("a plain file in the way: got no error")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file in the way: got %q, %v", b, err)
	}
}

func TestAddresses(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", ":7610", "[::1]:80", "unix:/run/x", "localhost:1"} {
		if err := CheckAddress(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", "unix:", "/run/x", "127.0.0.1", "unix:/" + strings.Repeat("x", 107)} {
		if err := CheckAddress(addr); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: got %v, want %v", addr, err, ErrAddress)
		}
		if l, err := Listen(addr); err == nil {
			l.Close()
			t.Errorf("%s: Listen gave no error", addr)
		}
	}
}
