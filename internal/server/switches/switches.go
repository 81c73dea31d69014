package switches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// Board holds a copy of the switches beside the policy store, where all servers reach it. The kill switch has to work
// while the policy store is away. A board may forget at any time, and others may write to it; servers then post again
// what they know.
type Board interface {
	// Posted returns the copy if its revision is above after. The text is empty when there is nothing newer; when
	// nothing is posted, the revision is 0 as well.
	Posted(ctx context.Context, after int64) (revision int64, text string, err error)
	// Post replaces the copy unless it has that revision or a higher one.
	Post(ctx context.Context, revision int64, text string) error
	// Retract takes down the copy of that revision.
	Retract(ctx context.Context, revision int64) error
}

const (
	// boardTimeout bounds one look at the board, or one attempt to tell a store. Both have to fit into the second
	// within which a switch is everywhere.
	boardTimeout = 400 * time.Millisecond
	boardEvery   = 200 * time.Millisecond
	// boardSlowly is the pace while neither the board nor the store takes what is new.
	boardSlowly = time.Second
	// setTries bounds how often a change is numbered anew because another was stored
	// meanwhile under a higher number.
	setTries = 3
)

// Agents is the view of this server's agents.
type Agents interface {
	// SwitchTo puts switches in force for them.
	SwitchTo(limit.Switches)
	// Answers reports whether the policy store did when it was last asked.
	Answers() bool
}

// Switchboard holds the newest switches that any server was told of. They are in this server's memory first. From there
// they go to the policy store and to the board, as soon as each can be reached. Of two copies the one of the higher
// revision holds. A revision begins at the time of the change, so the higher one was set later. A server that restarts
// while both are away forgets what only it knew.
//
// If this server was given a file, the file overrides all of that for this server's agents.
type Switchboard struct {
	store policystore.Store
	board Board  // nil for none
	path  string // of the file; empty for none
	view  Agents
	log   *slog.Logger
	now   func() time.Time
	poke  chan struct{} // asks for a round at once

	follower *switchfile.Follower // the rounds' alone; nil before the first

	mu     sync.Mutex
	secret []byte // what copies are signed with; nil before it was read
	held   limit.Switches
	by     string // who set held
	stored int64  // the revision in the policy store, as far as is known
	copied int64  // the revision on the board, likewise
	away   bool   // the board did not answer last

	file switchfile.Says // what the file says; the zero value for nothing
}

// New returns a switchboard that knows of no switches; board is nil for none, and path empty without a file.
func New(store policystore.Store, board Board, path string, v Agents, log *slog.Logger) *Switchboard {
	return &Switchboard{store: store, board: board, path: path, view: v, log: log, now: time.Now, poke: make(chan struct{}, 1)}
}

// Run keeps all copies the same until ctx ends.
func (s *Switchboard) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.poke:
		}
		every := boardEvery
		if !s.Round(ctx) {
			every = boardSlowly
		}
		timer.Reset(every)
	}
}

// Round looks at the file and the board, and updates the copies that are older. It reports whether all of them
// answered.
func (s *Switchboard) Round(ctx context.Context) bool {
	s.readFile()
	fine := s.look(ctx)
	err := s.tell(ctx)
	if errors.Is(err, policystore.ErrConflict) {
		// Another server was first, with these or with newer ones.
		err = s.ask(ctx)
	}
	return err == nil && fine
}

// look takes what the board has, if it is newer, and posts what is newer here.
func (s *Switchboard) look(ctx context.Context) bool {
	if s.board == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	revision, text, err := s.board.Posted(ctx, held.Revision)
	if err == nil && text != "" {
		err = s.take(ctx, revision, text)
		if errors.Is(err, errForged) {
			s.log.Error("the copy of the switches in the lease store was forged, and is taken down: see who can write there", "error", err)
			revision, err = 0, s.board.Retract(ctx, revision)
		}
	}
	if err == nil {
		s.mu.Lock()
		s.copied = revision
		s.mu.Unlock()
		err = s.post(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if away := err != nil; away != s.away && ctx.Err() == nil {
		if s.away = away; away {
			s.log.Warn("the copy of the switches beside the policy store cannot be used now", "error", err)
		}
	}
	return err == nil
}

// take puts in force what a server posted. Where the signature is wrong, the policy store may be another than before,
// with another secret: it is asked once more, if it answers.
func (s *Switchboard) take(ctx context.Context, revision int64, text string) error {
	secret, err := s.secretOf(ctx, false)
	if err != nil {
		return err
	}
	sw, by, err := verified(secret, revision, text)
	if errors.Is(err, errForged) && s.view.Answers() {
		if secret, again := s.secretOf(ctx, true); again == nil {
			sw, by, err = verified(secret, revision, text)
		}
	}
	if err != nil {
		return err
	}
	s.adopt(sw, "lease store ("+by+")")
	return nil
}

// post puts the switches on the board, where those there are older.
func (s *Switchboard) post(ctx context.Context) error {
	s.mu.Lock()
	held, by, copied := s.held, s.by, s.copied
	s.mu.Unlock()
	if s.board == nil || held.Revision <= copied {
		return nil
	}
	secret, err := s.secretOf(ctx, false)
	if err != nil {
		return err
	}
	text, err := sign(secret, &posted{Revision: held.Revision, Mode: held.Mode.String(), Denied: held.Denied, By: by})
	if err != nil {
		return err
	}
	if err := s.board.Post(ctx, held.Revision, text); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copied = max(s.copied, held.Revision)
	return nil
}

// errAway means that the policy store is not waited for: it did not answer just now.
var errAway = errors.New("the policy store is away")

// tell stores the switches where those stored are older: they were set while the
// policy store was away. It is not waited for while it still is.
func (s *Switchboard) tell(ctx context.Context) error {
	s.mu.Lock()
	held, by, stored := s.held, s.by, s.stored
	s.mu.Unlock()
	if held.Revision <= stored {
		return nil
	}
	if !s.view.Answers() {
		return errAway
	}
	if by == "" {
		by = "another server"
	}
	ctx, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	if _, err := s.store.SetSwitches(ctx, by, held); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = max(s.stored, held.Revision)
	return nil
}

// ask takes what the policy store has.
func (s *Switchboard) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	sw, err := s.store.Switches(ctx)
	if err == nil {
		s.FromStore(sw)
	}
	return err
}

// FromStore takes what the policy store has. It wins over switches of the same revision.
func (s *Switchboard) FromStore(sw limit.Switches) {
	s.mu.Lock()
	s.stored = sw.Revision
	same := sw.Revision == s.held.Revision
	if same {
		s.held = sw
		s.publishLocked()
	}
	s.mu.Unlock()
	if !same {
		s.adopt(sw, "")
	}
}

// adopt puts switches in force, if they are newer than the present ones.
func (s *Switchboard) adopt(sw limit.Switches, by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sw.Revision <= s.held.Revision {
		return
	}
	s.held, s.by = sw, by
	s.publishLocked()
}

// publishLocked tells agents the switches in force; the file's override the others.
func (s *Switchboard) publishLocked() {
	s.view.SwitchTo(s.file.Over(s.held))
}

// Set replaces the switches. They are in memory when it returns, and in each store that can be reached now; agents are
// told without waiting for a store. Two servers that have not heard of each other, for up to boardEvery, may both make
// a change; the later one holds.
func (s *Switchboard) Set(ctx context.Context, by string, sw limit.Switches, base int64) error {
	sw.Denied = slices.Clone(sw.Denied)
	slices.Sort(sw.Denied)
	sw.Denied = slices.Compact(sw.Denied)
	s.mu.Lock()
	if base != 0 && base != s.held.Revision {
		defer s.mu.Unlock()
		return fmt.Errorf("%w: the switches have revision %d, and the change was made from %d", fault.ErrConflict, s.held.Revision, base)
	}
	sw.Revision = max(s.now().UnixMilli(), s.held.Revision+1)
	s.held, s.by = sw, by
	s.publishLocked()
	s.mu.Unlock()
	s.log.Warn("switches set", "mode", sw.Mode.String(), "denied_tenants", len(sw.Denied), "by", by, "revision", sw.Revision)
	s.spread(ctx)
	return nil
}

// spread tells the board and the store at once; what fails is tried again by run.
func (s *Switchboard) spread(ctx context.Context) {
	post, cancel := context.WithTimeout(ctx, boardTimeout)
	_ = s.post(post) // run tries again, and says that the board is away
	cancel()
	for range setTries {
		err := s.tell(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, policystore.ErrConflict) || !s.outrun(ctx) {
			break
		}
	}
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// outrun gives this server's change a higher number than the one that another server, whose clock is ahead, stored
// meanwhile. It reports whether the store has to be told again.
func (s *Switchboard) outrun(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	theirs, err := s.store.Switches(ctx)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if theirs.Revision < s.held.Revision {
		return true
	}
	if theirs.Revision == s.held.Revision && theirs.Mode == s.held.Mode && slices.Equal(theirs.Denied, s.held.Denied) {
		s.stored = theirs.Revision // another server found it on the board, and stored it
		return false
	}
	s.held.Revision = theirs.Revision + 1
	s.publishLocked()
	return true
}

// State is the switches that were set, the stores that do not have them yet, and the file that overrides them.
func (s *Switchboard) State() (sw limit.Switches, pending []string, file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held.Revision > s.stored {
		pending = append(pending, "policy store")
	}
	if s.board != nil && s.held.Revision > s.copied {
		pending = append(pending, "lease store")
	}
	if s.file.Anything() {
		file = s.path
	}
	return s.held, pending, file
}

// readFile reads the file if it has changed. A file that is gone overrides nothing; one with faults leaves the previous
// content in force. Only Round calls it.
func (s *Switchboard) readFile() {
	if s.path == "" {
		return
	}
	if s.follower == nil {
		says, err := switchfile.Read(s.path)
		s.follower = switchfile.Follow(s.path, says)
		s.heard(says, err)
		return
	}
	if says, changed, err := s.follower.Look(); changed {
		s.heard(says, err)
	}
}

func (s *Switchboard) heard(says switchfile.Says, err error) {
	if err != nil {
		s.log.Error("switch file not in force; what it said before stays", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if says.Equal(s.file) {
		return
	}
	s.file = says
	in := says.Over(s.held)
	s.log.Warn("switch file read", "file", s.path, "overrides", says.Anything(), "mode", in.Mode.String(), "denied_tenants", len(in.Denied))
	s.publishLocked()
}
