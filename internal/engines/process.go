package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Command is one engine process to start.
type Command struct {
	Name string   // for messages, and for the log file in Dir: "redis-7001"
	Path string   // the executable
	Args []string // without the executable's own name
	Dir  string   // working directory; standard output and error go to Name.log in it
	Env  []string // in addition to PATH and LC_ALL
	UID  int      // run as this user and group when positive
	GID  int
	// Quit ends the process at once, but in order: SIGQUIT for Postgres, SIGKILL where nothing needs order.
	Quit syscall.Signal
}

// Unit is one running part of an engine: a process here, or a container in a test
// environment. Its methods are safe for concurrent use.
type Unit interface {
	Exited() bool                   // whether it ended by itself or by Kill or Quit
	Kill() error                    // end it as a crash would, and wait for its end
	Quit(ctx context.Context) error // end it at once but orderly, and wait for its end
	Pause() error                   // it stops doing anything, and its connections stay open
	Resume() error                  // takes Pause back
	Log() string                    // the end of what it said
}

// Launcher starts a unit. This package's own launcher is Start.
type Launcher func(ctx context.Context, c Command) (Unit, error)

// Process is an engine's process. Start starts one.
type Process struct {
	name string
	pid  int
	log  string
	quit syscall.Signal

	mu     sync.Mutex
	exited bool
}

// Start starts c in a process group of its own, in the keeper's care.
func Start(_ context.Context, c Command) (Unit, error) {
	if err := startKeeper(); err != nil {
		return nil, err
	}
	logPath := filepath.Join(c.Dir, c.Name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Dir:   c.Dir,
		Env:   append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}, c.Env...),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if c.UID > 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.GID)}
	}
	p, err := os.StartProcess(c.Path, append([]string{c.Path}, c.Args...), attr)
	if err != nil {
		return nil, fmt.Errorf("engines: start %s: %w", c.Name, err)
	}
	quit := c.Quit
	if quit == 0 {
		quit = syscall.SIGKILL
	}
	tell("started %d %s", p.Pid, signalName(quit))
	pid := p.Pid
	// wait4 below waits for the process, without a goroutine.
	if err := p.Release(); err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	return &Process{name: c.Name, pid: pid, log: logPath, quit: quit}, nil
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGQUIT:
		return "QUIT"
	case syscall.SIGTERM:
		return "TERM"
	case syscall.SIGINT:
		return "INT"
	default:
		return "KILL"
	}
}

// PID is the process's id. It may belong to nobody, or to another process, after its end.
func (p *Process) PID() int { return p.pid }

// Exited reports whether the process has ended.
func (p *Process) Exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exitedLocked()
}

func (p *Process) exitedLocked() bool {
	if p.exited {
		return true
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
	if pid == p.pid || errors.Is(err, syscall.ECHILD) {
		p.exited = true
		tell("ended %d", p.pid)
	}
	return p.exited
}

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exitedLocked() {
		return fmt.Errorf("engines: %s: %w", p.name, os.ErrProcessDone)
	}
	if err := syscall.Kill(-p.pid, s); err != nil {
		return fmt.Errorf("engines: %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process group with SIGKILL and returns when the process is gone.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return waitFor(context.Background(), p.Exited)
}

// Quit sends the signal named in Command, and SIGKILL if ctx ends before the process does.
func (p *Process) Quit(ctx context.Context) error {
	if err := p.signal(p.quit); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	if err := p.Resume(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := waitFor(ctx, p.Exited); err != nil {
		return errors.Join(fmt.Errorf("engines: %s did not end: %w", p.name, err), p.Kill())
	}
	return nil
}

// Pause stops the process with SIGSTOP: the simplest hung server.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume takes Pause back.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Log is the last of the process's output, at most 4 KiB.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

// waitFor asks again every few milliseconds until done or the end of ctx.
func waitFor(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
