package switches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/servertest"
	"github.com/f4ee788f/quota/internal/server/view"
)

// shelf is a policy store that keeps switches, and fails or hangs when told to.
type shelf struct {
	policystore.Store
	mu    sync.Mutex
	sw    limit.Switches
	audit []string
	down  bool
	hangs bool
}

func (s *shelf) wait(ctx context.Context) error {
	s.mu.Lock()
	down, hangs := s.down, s.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", policystore.ErrUnavailable, ctx.Err())
	}
	if down {
		return policystore.ErrUnavailable
	}
	return nil
}

func (s *shelf) set(down, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.hangs = down, hangs
}

func (s *shelf) Heads(ctx context.Context) (policystore.Heads, error) {
	if err := s.wait(ctx); err != nil {
		return policystore.Heads{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return policystore.Heads{Switches: s.sw.Revision}, nil
}

func (s *shelf) Secret(ctx context.Context, name string) ([]byte, error) {
	return []byte("the secret of " + name), s.wait(ctx)
}

func (s *shelf) Keys(ctx context.Context, _ string, _ int, _ bool) ([]policystore.Key, error) {
	return nil, s.wait(ctx)
}

func (s *shelf) Switches(ctx context.Context) (limit.Switches, error) {
	err := s.wait(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sw, err
}

func (s *shelf) SetSwitches(ctx context.Context, actor string, sw limit.Switches) (limit.Switches, error) {
	if err := s.wait(ctx); err != nil {
		return limit.Switches{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sw.Revision <= s.sw.Revision {
		return limit.Switches{}, policystore.ErrConflict
	}
	s.sw = sw
	s.audit = append(s.audit, actor+" "+sw.Mode.String())
	return sw, nil
}

// board is one in memory.
type board struct {
	mu       sync.Mutex
	revision int64
	text     string
	down     bool
}

func (b *board) Posted(_ context.Context, after int64) (int64, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.down:
		return 0, "", errors.New("the board is away")
	case b.revision <= after:
		return b.revision, "", nil
	}
	return b.revision, b.text, nil
}

func (b *board) Post(_ context.Context, revision int64, text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return errors.New("the board is away")
	}
	if revision > b.revision {
		b.revision, b.text = revision, text
	}
	return nil
}

func (b *board) Retract(_ context.Context, revision int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.revision == revision {
		b.revision, b.text = 0, ""
	}
	return nil
}

// forge writes what is not a server's.
func (b *board) forge(revision int64, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revision, b.text = revision, text
}

func (b *board) set(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// hall is some servers, as far as switches go, over one store and one board.
type hall struct {
	t     *testing.T
	store *shelf
	board *board
	all   []*Switchboard
	views []*view.View
}

func newHall(t *testing.T, n int, file string) *hall {
	h := &hall{t: t, store: &shelf{}, board: &board{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range n {
		log := slog.New(slog.DiscardHandler)
		v, err := view.New(h.store, servertest.Nobody{}, time.Now, log, prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		s := New(h.store, h.board, file, v, log)
		v.Tell(view.Hooks{Switches: s.FromStore})
		running.Go(func() { _ = v.Run(ctx) })
		h.views = append(h.views, v)
		running.Go(func() { _ = s.Run(ctx) })
		if err := s.Arm(ctx); err != nil {
			t.Fatal(err)
		}
		h.all = append(h.all, s)
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	h.pass(time.Second)
	return h
}

// pass lets time go by, and everything that is due in it happen.
func (h *hall) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *hall) setMode(i int, mode limit.Mode, denied ...string) {
	h.t.Helper()
	if err := h.all[i].Set(h.t.Context(), fmt.Sprint("op", i), limit.Switches{Mode: mode, Denied: denied}, 0); err != nil {
		h.t.Fatal(err)
	}
}

// want checks what the agents of each server are told.
func (h *hall) want(when string, modes ...limit.Mode) {
	h.t.Helper()
	for i, mode := range modes {
		if got := h.views[i].Current().Switches.Mode; got != mode {
			h.t.Errorf("%s: server %d says %s, want %s", when, i, got, mode)
		}
	}
}

const (
	normal = limit.ModeNormal
	allow  = limit.ModeAllowAll
	shadow = limit.ModeShadowAll
)

// With everything there, a switch is stored with its author, and all servers have it
// within a second.
func TestSwitchesSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 2, "")
		h.setMode(0, allow, "b", "a", "b")
		if sw, pending, _ := h.all[0].State(); len(pending) != 0 || !slices.Equal(sw.Denied, []string{"a", "b"}) {
			t.Errorf("set: %+v, pending %q; want a and b, and nothing pending", sw, pending)
		}
		h.want("at once", allow)
		h.pass(500 * time.Millisecond)
		h.want("half a second later", allow, allow)
		if got := h.store.audit; !slices.Equal(got, []string{"op0 allow_all"}) {
			t.Errorf("stored: %q, want it once, by who set it", got)
		}
	})
}

// Without the policy store the board carries a switch to the other server within a
// second; the store has it, with its author, once it is back.
func TestSwitchesWithoutTheStore(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHall(t, 2, "")
			h.store.set(true, hangs)
			begin := time.Now()
			h.setMode(0, allow)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("hangs %v: set took %s", hangs, took)
			}
			h.want("at once", allow)
			if _, pending, _ := h.all[0].State(); !slices.Equal(pending, []string{"policy store"}) {
				t.Errorf("hangs %v: pending %q, want the policy store", hangs, pending)
			}
			h.pass(time.Second - time.Since(begin))
			h.want("a second later", allow, allow)
			h.pass(time.Minute)
			h.store.set(false, false)
			h.pass(5 * time.Second)
			h.want("with the store back", allow, allow)
			if sw := h.store.sw; sw.Mode != allow || len(h.store.audit) != 1 || !strings.Contains(h.store.audit[0], "op0") {
				t.Errorf("hangs %v: stored %+v, audit %q; want it once, by who set it", hangs, sw, h.store.audit)
			}
			if _, pending, _ := h.all[0].State(); len(pending) != 0 {
				t.Errorf("hangs %v: pending %q still", hangs, pending)
			}
		})
	}
}

// Whoever can write to the board and is no server changes nothing, and keeps nothing there: neither with a text of his
// own, nor with a server's under another revision.
func TestForgedSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 2, "")
		h.setMode(0, shadow)
		h.pass(time.Second)
		genuine := h.board.text
		const huge = limit.MaxSwitchRevision
		secret, _ := h.store.Secret(t.Context(), switchSecret)
		guessed, err := sign([]byte("a guess"), &posted{Revision: huge, Mode: "allow_all", By: "root"})
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"unsigned":                fmt.Sprintf(`{"revision":%d,"mode":"allow_all","by":"root"}`, huge),
			"by another secret":       guessed,
			"with another's MAC":      guessed[:strings.Index(guessed, `"mac"`)] + genuine[strings.Index(genuine, `"mac"`):],
			"of another revision":     genuine,
			"no text of that kind":    "?",
			"without what was signed": `{"mac":""}`,
		} {
			h.board.forge(huge, text)
			h.pass(time.Second)
			h.want(name, shadow, shadow)
			if sw, _, err := verified(secret, h.board.revision, h.board.text); err != nil || sw.Mode != shadow {
				t.Errorf("%s: on the board is %+v, %v; want the servers' again: %s", name, sw, err, h.board.text)
			}
		}
		h.setMode(1, allow)
		h.pass(time.Second)
		h.want("set afterwards", allow, allow)
		if got := h.store.audit; !slices.Equal(got, []string{"op0 shadow_all", "op1 allow_all"}) {
			t.Errorf("stored: %q", got)
		}
	})
}

// What a server has from the board alone is stored by the name of the lease store, with who it says set it.
func TestSwitchesByTheBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 2, "")
		h.store.set(true, false)
		secret, _ := (&shelf{}).Secret(t.Context(), switchSecret)
		text, err := sign(secret, &posted{Revision: 7, Mode: "allow_all", By: "op0"}) // of a server that is no more
		if err != nil {
			t.Fatal(err)
		}
		h.board.forge(7, text)
		h.pass(time.Second)
		h.want("posted", allow, allow)
		h.store.set(false, false)
		h.pass(5 * time.Second)
		if got := h.store.audit; !slices.Equal(got, []string{"lease store (op0) allow_all"}) {
			t.Errorf("stored: %q", got)
		}
	})
}

// Without the store and the board each server is told by itself; when one of the two
// is back, what was set last holds everywhere.
func TestSwitchesWithoutEither(t *testing.T) {
	for _, back := range []string{"board", "store"} {
		synctest.Test(t, func(t *testing.T) {
			h := newHall(t, 2, "")
			h.store.set(true, false)
			h.board.set(true)
			h.pass(time.Second)
			h.setMode(0, allow)
			h.pass(time.Second)
			h.want("told one", allow, normal)
			h.setMode(1, shadow)
			h.pass(10 * time.Second)
			h.want("told each", allow, shadow)
			if back == "board" {
				h.board.set(false)
			} else {
				h.store.set(false, false)
			}
			h.pass(5 * time.Second)
			h.want("with the "+back+" back", shadow, shadow)
		})
	}
}

// A board that was wiped is told again; a store that was put back to an earlier state as well.
func TestSwitchesForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1, "")
		h.setMode(0, allow)
		h.board.mu.Lock()
		h.board.revision, h.board.text = 0, ""
		h.board.mu.Unlock()
		h.store.mu.Lock()
		h.store.sw = limit.Switches{Revision: 1}
		h.store.mu.Unlock()
		h.pass(5 * time.Second)
		h.want("told again", allow)
		if h.store.sw.Mode != allow || h.board.revision != h.store.sw.Revision {
			t.Errorf("store %+v, board %d", h.store.sw, h.board.revision)
		}
	})
}

// A server whose clock is behind still has the last word.
func TestSwitchesWithClocksApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 2, "")
		h.all[0].now = func() time.Time { return time.Now().Add(10 * time.Minute) }
		h.setMode(0, allow)
		h.pass(time.Second)
		h.setMode(1, normal)
		h.pass(time.Second)
		h.want("after the second", normal, normal)
		// Even before it heard of the first: the store tells it so.
		h.setMode(0, allow)
		h.all[1].mu.Lock()
		h.all[1].held.Revision, h.all[1].stored, h.all[1].copied = 1, 1, 1
		h.all[1].mu.Unlock()
		h.setMode(1, shadow)
		h.pass(2 * time.Second)
		h.want("after the third", shadow, shadow)
		if h.store.sw.Mode != shadow {
			t.Errorf("stored: %+v", h.store.sw)
		}
	})
}

// A change made from switches that are not those in force is refused.
func TestSwitchesBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1, "")
		h.setMode(0, allow)
		sw, _, _ := h.all[0].State()
		if err := h.all[0].Set(t.Context(), "ann", limit.Switches{}, sw.Revision-1); !errors.Is(err, fault.ErrConflict) {
			t.Errorf("from another revision: %v, want a conflict", err)
		}
		if err := h.all[0].Set(t.Context(), "ann", limit.Switches{}, sw.Revision); err != nil {
			t.Errorf("from the one in force: %v", err)
		}
		h.want("set", normal)
	})
}

// The file overrides what was set for as long as it is there; faults leave what it said.
func TestSwitchFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switches.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1, path)
		h.setMode(0, shadow, "a")
		write("mode: allow_all\ndeny: [b]\n")
		h.pass(time.Second)
		h.want("with the file", allow)
		if got := h.views[0].Current().Switches.Denied; !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("denied %q, want a, who was set, and b of the file", got)
		}
		if sw, _, file := h.all[0].State(); sw.Mode != shadow || file != path {
			t.Errorf("state: %+v, file %q", sw, file)
		}
		write("mode: everything\n")
		h.pass(time.Second)
		h.want("with a faulty file", allow)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Second)
		h.want("without the file", shadow)
	})
}
