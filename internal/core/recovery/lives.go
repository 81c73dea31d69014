package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// journalSync is the interval of syncs: a loss of power takes at most the usage of so long.
const journalSync = 100 * time.Millisecond

// Journal is a client's journal: the life that it writes, and those before that are to be settled.
type Journal struct {
	Dir     *journal.Dir
	Life    *journal.Life
	Past    []*Past
	Refused int64 // bytes of logs that were not believed, and are kept aside
	// Unsealed is units that those before have in cells alone, under a secret.
	Unsealed int64
	// Tenants are those that the last life ended with: they are likely to be asked for again.
	Tenants []string
	// Reservations are those that lives before knew, and that ended less than their KnownFor ago: those that were open
	// ended now. So are events that were booked.
	Reservations []usage.Reservation
	records      *usage.Journal
	held         map[usage.ReservationID]usage.Reservation
	newest       int64 // epoch of the latest of these lives
}

// Past is a life that has ended and is not settled.
type Past struct {
	Life   *journal.Life
	Outbox *usage.Outbox
	Units  int64 // that were not acknowledged when it was read
	// Unsealed is units of these that the journal does not vouch for.
	Unsealed int64

	unknown int   // cells that are missing: what was not sealed of them is not known
	cut     int64 // unsealed units that found no room
}

// Records is what buckets and reports are recorded in; nil, which records nothing, without a journal.
func (k *Journal) Records() *usage.Journal {
	if k == nil {
		return nil
	}
	return k.records
}

// Config says where a journal is.
type Config struct {
	Dir    string        // empty for none
	Agent  string        // may be empty: then the name of the life before, or one that nobody has
	Age    time.Duration // that settled logs are kept
	Bytes  int64         // of them at most
	Secret []byte        // nil for none
	Log    *slog.Logger
}

// Open takes the directory, reads the lives that are not settled, and begins another. It is
// nil without a journal.
func Open(cfg *Config, epoch int64) (_ *Journal, err error) {
	if cfg.Dir == "" {
		return nil, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrJournal, err)
		}
	}()
	dir, err := journal.Open(cfg.Dir, cfg.Secret)
	if err != nil {
		return nil, err
	}
	k := &Journal{Dir: dir, held: make(map[usage.ReservationID]usage.Reservation)}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	k.readLast()
	if cfg.Agent == "" {
		if cfg.Agent, err = dir.Agent(); err != nil {
			return nil, err
		}
		if cfg.Agent == "" {
			cfg.Agent = NewAgent()
		}
	}
	if k.Past, err = k.readPast(cfg.Agent, cfg.Log); err != nil {
		return nil, err
	}
	if k.Life, err = dir.Begin(cfg.Agent, epoch); err != nil {
		return nil, err
	}
	k.records = usage.NewJournal(k.Life)
	k.inherit(time.Now())
	if err := k.Life.Sync(); err != nil { // before the logs that it inherits from may go
		return nil, err
	}
	if err := dir.Prune(time.Now(), cfg.Age, cfg.Bytes); err != nil {
		return nil, err
	}
	return k, nil
}

// readLast reads the newest log, settled or not, for its tenants and reservations: none where it cannot be read. Its
// life may have ended while it was told what the one before knew. So logs are read back to a life that did anything.
func (k *Journal) readLast() {
	logs, _ := k.Dir.Kept()
	for _, last := range slices.Backward(logs) {
		life := usage.NewRecovery(last.Agent, last.Epoch)
		if k.Dir.Read(last, life.Record) != nil {
			return
		}
		if len(k.Tenants) == 0 {
			k.Tenants = life.Tenants()
		}
		k.hold(life, last.Epoch)
		if life.Acted() {
			return
		}
	}
}

// hold takes what a life knew of reservations. A later life knows better.
func (k *Journal) hold(life *usage.Recovery, epoch int64) {
	for _, r := range life.Reservations() {
		if _, known := k.held[r.ReservationID]; !known || epoch >= k.newest {
			k.held[r.ReservationID] = r
		}
	}
	k.newest = max(k.newest, epoch)
}

// inherit has the life that begins know the reservations of those before.
func (k *Journal) inherit(now time.Time) {
	for _, r := range k.held {
		if r.State == usage.Open {
			r.State, r.Ended = usage.Expired, now.UnixMilli()
		}
		if now.Sub(time.UnixMilli(r.Ended)) < r.KnownFor() {
			k.Reservations = append(k.Reservations, r)
		}
	}
	slices.SortFunc(k.Reservations, func(a, b usage.Reservation) int {
		return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Number, b.Number))
	})
	for i := range k.Reservations {
		k.records.Know(&k.Reservations[i])
	}
	k.held = nil
}

// readPast reads the lives of an agent that are not settled; of any, where none is named. What it
// returns with an error is to be closed.
func (k *Journal) readPast(name string, log *slog.Logger) (lives []*Past, err error) {
	dir := k.Dir
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
		p, err := k.readLife(h)
		if err == nil && p.Life.Refused.File != "" {
			r := p.Life.Refused
			k.Refused += r.Bytes
			log.Error("the journal's log was changed or torn: what is behind is not settled, and kept aside",
				"agent", h.Agent, "epoch", h.Epoch, "file", r.File, "bytes", r.Bytes, "why", r.Why)
		}
		if err == nil && p.Life.Marked {
			log.Error("somebody without the secret wrote into the journal's cells that a life was given up: that is not believed",
				"agent", h.Agent, "epoch", h.Epoch)
		}
		if err == nil && p.unknown > 0 {
			log.Error("cells of the journal are missing: what is sealed of them is settled, and what is not is unknown",
				"agent", h.Agent, "epoch", h.Epoch, "cells", p.unknown)
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
		case p.Outbox.Done():
			if err := p.Life.Drain(); err != nil {
				return lives, err
			}
		default:
			log.Info("a life of the journal is to be settled first", "agent", h.Agent, "epoch", h.Epoch, "units", p.Units)
			if k.Unsealed += p.Unsealed; p.Unsealed > 0 {
				log.Warn("units are in cells of the journal alone, which are not sealed: they go to quarantine, for an operator to retry or discard",
					"agent", h.Agent, "epoch", h.Epoch, "units", p.Unsealed)
			}
			if p.cut > 0 {
				log.Error("cells of the journal hold more units than a life can have, which somebody wrote there: those are not settled",
					"agent", h.Agent, "epoch", h.Epoch, "units", p.cut)
			}
			lives = append(lives, p)
		}
	}
	return lives, nil
}

// errGivenUp is of a life that its own process gave up, unlike one that cannot be taken up now.
var errGivenUp = errors.New("given up by the process that wrote it")

func (k *Journal) readLife(h journal.Header) (*Past, error) {
	recovery := usage.NewRecovery(h.Agent, h.Epoch)
	recovery.Sealed = h.Sealed()
	life, err := k.Dir.Resume(h, recovery.Record)
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
	if k.held != nil {
		k.hold(recovery, h.Epoch)
	}
	s := outbox.State()
	return &Past{life, outbox, s.Units, s.Unsealed, recovery.Unknown, recovery.Cut}, nil
}

// Run syncs until ctx ends.
func (k *Journal) Run(ctx context.Context, log *slog.Logger) {
	if err := k.Life.Run(ctx, journalSync); err != nil {
		log.Error("the journal is not synced any more: a loss of power takes what is not settled", "error", err)
	}
}

// Close gives up what is not settled, for the next start, and the directory.
func (k *Journal) Close() error {
	var errs []error
	for _, p := range k.Past {
		errs = append(errs, p.Life.Close())
	}
	if k.Life != nil {
		if err := k.Life.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, k.Dir.Close())...)
}

// UnitsOf is what lives of the past have that is not settled.
func UnitsOf(lives []*Past) (n int64) {
	for _, p := range lives {
		n += p.Outbox.State().Units
	}
	return n
}
