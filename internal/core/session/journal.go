package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/journal"
)

// journalSync is what a loss of power may take of what was counted.
const journalSync = 100 * time.Millisecond

// keeper is a client's journal: the life that it writes, and those before that are to be settled.
type keeper struct {
	dir     *journal.Dir
	life    *journal.Life
	journal *agent.Journal
	past    []*past
	refused int64 // bytes of logs that were not believed, and are kept aside
}

// past is a life that has ended and is not settled.
type past struct {
	life   *journal.Life
	outbox *agent.Outbox
	units  int64 // that were not acknowledged when it was read
}

// records is what buckets and reports are recorded in; nil, which records nothing, without a journal.
func (k *keeper) records() *agent.Journal {
	if k == nil {
		return nil
	}
	return k.journal
}

// unbelieved is how many bytes of logs were kept aside.
func (k *keeper) unbelieved() int64 {
	if k == nil {
		return 0
	}
	return k.refused
}

func (k *keeper) own() *journal.Life {
	if k == nil {
		return nil
	}
	return k.life
}

// openKeeper takes the directory, reads the lives that are not settled, and begins another. It is
// nil without a journal.
func openKeeper(cfg *Config, epoch int64) (_ *keeper, err error) {
	if cfg.Journal == "" {
		return nil, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrJournal, err)
		}
	}()
	dir, err := journal.OpenSealed(cfg.Journal, cfg.JournalSecret)
	if err != nil {
		return nil, err
	}
	k := &keeper{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if cfg.Agent == "" {
		if cfg.Agent, err = dir.Agent(); err != nil {
			return nil, err
		}
		if cfg.Agent == "" {
			cfg.Agent = NewAgent()
		}
	}
	if k.past, err = k.readPast(cfg.Agent, cfg.Log); err != nil {
		return nil, err
	}
	if err := dir.Prune(time.Now(), cfg.JournalAge, cfg.JournalBytes); err != nil {
		return nil, err
	}
	if k.life, err = dir.Begin(cfg.Agent, epoch); err != nil {
		return nil, err
	}
	k.journal = agent.NewJournal(k.life)
	return k, nil
}

// readPast reads the lives of an agent that are not settled; of any, where none is named. What it
// returns with an error is to be closed.
func (k *keeper) readPast(name string, log *slog.Logger) (lives []*past, err error) {
	dir := k.dir
	headers, err := dir.Lives()
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		if name != "" && h.Agent != name {
			return lives, fmt.Errorf("%s holds usage of agent %s, which is not settled: start under that name, or settle it with quota-agent recover", dir.Path(), h.Agent)
		}
	}
	for _, h := range headers {
		p, err := readLife(dir, h)
		if err == nil && p.life.Refused.File != "" {
			r := p.life.Refused
			k.refused += r.Bytes
			log.Error("the journal's log was changed or torn: what is behind is not settled, and kept aside",
				"agent", h.Agent, "epoch", h.Epoch, "file", r.File, "bytes", r.Bytes, "why", r.Why)
		}
		switch {
		case errors.Is(err, errGivenUp):
			// It may be behind what was settled: nothing is settled from it.
			log.Error("a life of the journal was given up while it ran; what it had not settled is lost", "agent", h.Agent, "epoch", h.Epoch, "host", h.Host)
			if err := dir.SetAside(h, time.Now()); err != nil {
				return lives, err
			}
		case err != nil:
			return lives, err
		case p.outbox.Done():
			if err := p.life.Drain(); err != nil {
				return lives, err
			}
		default:
			log.Info("a life of the journal is to be settled first", "agent", h.Agent, "epoch", h.Epoch, "units", p.units)
			lives = append(lives, p)
		}
	}
	return lives, nil
}

// errGivenUp is of a life that its own process gave up, unlike one that cannot be taken up now.
var errGivenUp = errors.New("given up by the process that wrote it")

func readLife(dir *journal.Dir, h journal.Header) (*past, error) {
	recovery := agent.NewRecovery(h.Agent, h.Epoch)
	life, err := dir.Resume(h, recovery.Record)
	if errors.Is(err, journal.ErrVoid) {
		return nil, errGivenUp
	}
	if err != nil {
		return nil, err
	}
	outbox, err := recovery.Finish(life)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("life %d: %w", h.Epoch, err), life.Close())
	}
	return &past{life, outbox, outbox.State().Units}, nil
}

// run syncs until ctx ends.
func (k *keeper) run(ctx context.Context, log *slog.Logger) {
	if err := k.life.Run(ctx, journalSync); err != nil {
		log.Error("the journal is not synced any more: a loss of power takes what is not settled", "error", err)
	}
}

// close gives up what is not settled, for the next start, and the directory.
func (k *keeper) close() error {
	var errs []error
	for _, p := range k.past {
		errs = append(errs, p.life.Close())
	}
	if k.life != nil {
		if err := k.life.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, k.dir.Close())...)
}

// tidy keeps the journal's size within bounds.
func (l *Loop) tidy() {
	k := l.s.keeper
	if k == nil {
		return
	}
	put, err := k.journal.Trim(l.outbox)
	if err != nil {
		l.s.log.Warn("the journal cannot be made smaller", "error", err)
	}
	if put == nil {
		return
	}
	l.calls.Add(1)
	go func() { // it waits for the disk
		defer l.calls.Done()
		err := put()
		if err == nil {
			err = k.dir.Prune(time.Now(), l.s.cfg.JournalAge, l.s.cfg.JournalBytes)
		}
		if err != nil {
			l.s.log.Warn("the journal cannot be made smaller", "error", err)
		}
	}()
}

// recover goes on with the first life of the past after an answer.
func (l *Loop) recover() {
	p := l.past[0]
	p.outbox.FreezeRest() // an epoch that was fenced gave rows back
	if !p.outbox.Done() {
		return
	}
	s := p.outbox.State()
	settled := p.units - s.AsideUnits
	l.recovered += settled
	l.past = l.past[1:]
	l.s.log.Info("a life of the journal is settled", "epoch", p.life.Epoch, "units", settled, "reports_aside", s.AsideReports)
	if err := p.life.Drain(); err != nil {
		l.s.log.Error("a life of the journal that is settled cannot be put away", "error", err)
	}
}

// endKeeper ends the journal: of a life that is settled whole nothing is left to do.
func (l *Loop) endKeeper() error {
	k := l.s.keeper
	if k == nil {
		return nil
	}
	k.past = l.past
	var err error
	if l.outbox.Done() && k.journal.Fault() == nil {
		err = k.life.Drain()
	}
	return errors.Join(err, k.close())
}

// unitsOf is what lives of the past have that is not settled.
func unitsOf(lives []*past) (n int64) {
	for _, p := range lives {
		n += p.outbox.State().Units
	}
	return n
}
