package engines_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/engines"
)

// victimVariable makes this test binary the process that is killed.
const victimVariable = "QUOTA_TEST_KEEPER_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) != "" {
		victim()
		return
	}
	goleak.VerifyTestMain(m)
}

// victim starts two engines of a kind, one of which ends, says which, and waits for its death.
func victim() {
	dir, err := engines.TempDir("victim")
	if err != nil {
		fmt.Println(err)
		return
	}
	var pids []string
	for i := range 2 {
		u, err := engines.Start(context.Background(), engines.Command{
			Name: "sleep" + strconv.Itoa(i), Path: "/bin/sleep", Args: []string{"300"}, Dir: dir,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		pids = append(pids, strconv.Itoa(u.(*engines.Process).PID()))
		if i == 0 {
			if err := u.Kill(); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	fmt.Println(dir, pids[1])
	select {}
}

// A killed test binary leaves neither processes nor files behind.
func TestEnginesEndWithTheirProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir, last, ok := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(last)
	if !ok || err != nil {
		t.Fatalf("the victim says %q, want a directory and a process id", line)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the engine does not run: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as intended
	gone := func() bool {
		_, err := os.Stat(dir)
		return ended(pid) && errors.Is(err, os.ErrNotExist)
	}
	for tick := time.Tick(10 * time.Millisecond); !gone(); {
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("process %d or directory %s is still there", pid, dir)
		}
	}
}

// ended is also true of a process that only waits to be reaped, which nobody may do
// in a container whose first process is a shell.
func ended(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	start := func(name string, args ...string) engines.Unit {
		t.Helper()
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		u, err := engines.Start(t.Context(), engines.Command{Name: name, Path: path, Args: args, Dir: dir, Quit: syscall.SIGTERM})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := u.Kill(); err != nil {
				t.Error(err)
			}
		})
		return u
	}
	quit := start("sleep", "300")
	if quit.Exited() {
		t.Error("a sleeping process has exited")
	}
	if err := quit.Pause(); err != nil {
		t.Error(err)
	}
	// A paused process is ended too.
	if err := quit.Quit(t.Context()); err != nil || !quit.Exited() {
		t.Errorf("Quit = %v, Exited = %v, want nil and true", err, quit.Exited())
	}
	if err := quit.Pause(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Pause after the end = %v, want ErrProcessDone", err)
	}
	// What refuses to quit is killed at the end of the context.
	stubborn := start("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 300; done")
	for tick := time.Tick(5 * time.Millisecond); !strings.Contains(stubborn.Log(), "deaf"); {
		<-tick
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := stubborn.Quit(ctx); !errors.Is(err, context.DeadlineExceeded) || !stubborn.Exited() {
		t.Errorf("Quit = %v, Exited = %v, want a deadline exceeded and true", err, stubborn.Exited())
	}
}
