package session

import (
	"errors"
	"time"

	"github.com/f4ee788f/quota/internal/core/journal"
)

// life is the journal's life of this session; nil without a journal.
func (s *Session) life() *journal.Life {
	if s.journal == nil {
		return nil
	}
	return s.journal.Life
}

// tidy keeps the journal's size within bounds.
func (l *Loop) tidy() {
	k := l.s.journal
	if k == nil {
		return
	}
	put, err := k.Records().Trim(l.outbox)
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
			err = k.Dir.Prune(time.Now(), l.s.cfg.JournalAge, l.s.cfg.JournalBytes)
		}
		if err != nil {
			l.s.log.Warn("the journal cannot be made smaller", "error", err)
		}
	}()
}

// recover goes on with the first life of the past after an answer.
func (l *Loop) recover() {
	p := l.past[0]
	p.Outbox.FreezeRest() // an epoch that was fenced gave rows back
	if !p.Outbox.Done() {
		return
	}
	s := p.Outbox.State()
	settled := p.Units - s.AsideUnits
	l.recovered += settled
	l.past = l.past[1:]
	l.s.log.Info("a life of the journal is settled", "epoch", p.Life.Epoch, "units", settled, "reports_aside", s.AsideReports)
	if err := p.Life.Drain(); err != nil {
		l.s.log.Error("a life of the journal that is settled cannot be put away", "error", err)
	}
}

// endJournal ends the journal: of a life that is settled whole nothing is left to do.
func (l *Loop) endJournal() error {
	k := l.s.journal
	if k == nil {
		return nil
	}
	k.Past = l.past
	var err error
	if l.outbox.Done() && k.Records().Fault() == nil {
		err = k.Life.Drain()
	}
	return errors.Join(err, k.Close())
}
