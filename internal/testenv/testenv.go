package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/engines"
)

// startTimeout is for a cold machine with both cores busy; a start takes 1 to 3 seconds.
const startTimeout = 60 * time.Second

// errNone means that there is no way to get an engine here, which skips a test outside CI. Every other error of a start
// fails it.
var errNone = errors.New("testenv: no engine")

// shared is the one engine of its kind in this test binary.
type shared[E any] struct {
	once   sync.Once
	engine E
	err    error
	close  func() error
}

func (s *shared[E]) get(start func(context.Context) (E, func() error, error)) (E, error) {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.engine, s.close, s.err = start(ctx)
	})
	return s.engine, s.err
}

func (s *shared[E]) end() error {
	if s.close == nil {
		return nil
	}
	err := s.close()
	s.close = nil
	return err
}

// Main runs the tests and then stops the engines that they started. It returns the
// exit code:
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
func Main(m *testing.M) int { return Wrap(m).Run() }

// Runner is what goleak.VerifyTestMain takes: tests that can be run.
type Runner struct{ m *testing.M }

// Wrap makes Main fit for goleak, which looks for goroutines after the engines' end:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Wrap(m)) }
func Wrap(m *testing.M) Runner { return Runner{m} }

// Redialing excepts go-redis's goroutine that tries a dead node again: it sleeps a
// second before it sees that its client is closed. For packages that kill nodes:
//
//	goleak.VerifyTestMain(testenv.Wrap(m), testenv.Redialing())
func Redialing() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}

// Run is Main.
func (r Runner) Run() int {
	code := r.m.Run()
	if err := errors.Join(sharedRedis.end(), sharedPostgres.end(), engines.RemoveTempDirs()); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: stop the engines:", err)
		code = max(code, 1)
	}
	return code
}

// required reports whether a missing engine is a failure.
func required() bool {
	for _, name := range []string{"CI", "QUOTA_TEST_REQUIRE"} {
		if on, err := strconv.ParseBool(os.Getenv(name)); err == nil && on {
			return true
		}
	}
	return false
}

// give ends the test because an engine is not available.
func give(t testing.TB, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errNone) && !required():
		t.Skipf("%s: SKIPPED, %v (CI=true or QUOTA_TEST_REQUIRE=1 makes this a failure)", what, err)
	default:
		t.Fatalf("%s: %v", what, err)
	}
}

var said sync.Map

// say prints where engines come from, once for each of them in a test binary.
func say(format string, args ...any) {
	line := fmt.Sprintf("testenv: "+format, args...)
	if _, again := said.LoadOrStore(line, true); !again {
		fmt.Fprintln(os.Stderr, line)
	}
}

// source is where an engine is started from.
type source int

const (
	fromDocker source = iota + 1
	fromMachine
)

// choose decides between Docker and the machine's own programs. docker makes sure of
// the image; local finds the programs.
func choose(ctx context.Context, docker func(context.Context) error, local func() error) (source, error) {
	mode := os.Getenv("QUOTA_TEST_ENGINES")
	switch mode {
	case "", "auto", "docker", "local":
	default:
		return 0, fmt.Errorf("QUOTA_TEST_ENGINES=%q: want auto, docker or local", mode)
	}
	var errs []error
	if mode != "local" {
		err := docker(ctx)
		if err == nil {
			return fromDocker, nil
		}
		errs = append(errs, fmt.Errorf("docker: %w", err))
	}
	if mode != "docker" {
		err := local()
		if err == nil {
			return fromMachine, nil
		}
		errs = append(errs, fmt.Errorf("this machine: %w", err))
	}
	return 0, fmt.Errorf("%w: %w", errNone, errors.Join(errs...))
}
