package session

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// life is the journal's life of this session; nil without a journal.
func (s *Session) life() *journal.Life {
	if s.journal == nil {
		return nil
	}
	return s.journal.Life
}

const (
	// sealEvery is the time between two seals, under a secret. After a kill what was counted since the last is in
	// quarantine.
	sealEvery = time.Second
	// sealShare bounds a seal's part of a processor: the next one waits so many times as long as the last took.
	sealShare = 20
)

// seal has the journal note again and again what buckets have counted, until ctx ends. It runs beside the loop. It reads
// each bucket that changed under its mutex, as a report does. A bucket that was dropped while a request decides is
// sealed with the next report, which the loop alone collects.
func (s *Session) seal(ctx context.Context) {
	t := time.NewTimer(sealEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		began := time.Now()
		s.journal.Records().Seal(func(seal func(*bucket.Cell, usage.Counter)) {
			s.Registry.Each(func(e *agent.Entry) {
				if at := e.Cell(); at != nil {
					seal(at, e)
					runtime.KeepAlive(e) // or its cell could be another's by then
				}
			})
		})
		t.Reset(max(sealEvery, sealShare*time.Since(began)))
	}
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
