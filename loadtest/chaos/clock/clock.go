// Package clock gives programs a time of day that a test sets while they run. It changes no line of theirs, and does
// not touch the machine's clock. Only the wall clock is set, as an operator or NTP sets it: monotonic clocks go on.
//
// A program in Go is built with an overlay of the standard library's package time. One in C is started with a small
// library loaded first. Both read their offset from a file that is mapped into them.
package clock

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// variable names the file in a program's environment.
const variable = "QUOTA_CHAOS_CLOCK"

// Clock is the clock of one program, or of several.
type Clock struct {
	name string
}

// New makes a clock that is right, in a file of that name.
func New(name string) (Clock, error) {
	c := Clock{name}
	return c, c.Set(0)
}

// Set sets the clock ahead of the machine's, or behind it if ahead is negative. Running programs see it at once.
func (c Clock) Set(ahead time.Duration) error {
	f, err := os.OpenFile(c.name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	return nil
}

// Env is the environment of a program in Go.
func (c Clock) Env() []string { return []string{variable + "=" + c.name} }

// EnvC is the environment of a program in C; library is what Library made.
func (c Clock) EnvC(library string) []string { return append(c.Env(), "LD_PRELOAD="+library) }

//go:embed preload/clock.c
var preload string

// Library makes the library for programs in C, below dir. It needs a C compiler.
func Library(ctx context.Context, dir string) (string, error) {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(preload), 0o644); err != nil {
		return "", fmt.Errorf("clock: %w", err)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if out, err := exec.CommandContext(ctx, cc, "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("clock: %s: %w: %s", cc, err, out)
	}
	return library, nil
}

// handed is the file that the overlay adds to package time.
const handed = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var ahead *atomic.Int64

func init() {
	name, ok := syscall.Getenv("` + variable + `")
	if !ok {
		return
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("clock: " + name + ": " + err.Error())
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("clock: " + name + ": " + err.Error())
	}
	_ = syscall.Close(fd)
	ahead = (*atomic.Int64)(unsafe.Pointer(&page[0]))
}

func handed(sec int64, nsec int32) (int64, int32) {
	if ahead == nil {
		return sec, nsec
	}
	n := int64(nsec) + ahead.Load()
	sec += n / 1e9
	if n %= 1e9; n < 0 {
		n += 1e9
		sec--
	}
	return sec, int32(n)
}
`

// asks is where time.Now asks the runtime, once in time.go.
const asks = "sec, nsec, mono := runtimeNow()\n"

// Overlay writes, below dir, what makes programs in Go read a Clock. The file it returns
// is for go build -overlay.
func Overlay(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("clock: go env: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", fmt.Errorf("clock: %w", err)
	}
	if strings.Count(string(source), asks) != 1 {
		return "", errors.New("clock: this Go's time.Now is written otherwise: mend loadtest/chaos/clock")
	}
	replace := make(map[string]string)
	for name, text := range map[string]string{
		"time.go":   strings.Replace(string(source), asks, asks+"\tsec, nsec = handed(sec, nsec)\n", 1),
		"handed.go": handed,
	} {
		replace[filepath.Join(std, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("clock: %w", err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("clock: %w", err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("clock: %w", err)
	}
	return file, nil
}
