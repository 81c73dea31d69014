package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Recovered is what Recover did; package client says what each field is.
type Recovered struct {
	Lives                                      []RecoveredLife
	Usage                                      []RecoveredUsage // of all lives, by tenant and meter
	ResentReports, ResentUnits, ForgottenUnits int64
	Refused                                    int64

	forgotten forgotten // of which ForgottenUnits is the sum
}

// RecoveredLife is one start of a client that had not settled all it counted.
type RecoveredLife struct {
	Agent   string
	Host    string // where it ran
	Epoch   int64
	Units   int64 // found in the journal, not acknowledged
	Settled int64 // of these, acknowledged now
	Reports int64 // that carried them
	Aside   int64 // units of reports that the ledger did not take: only an operator can place them
}

// RecoveredUsage is what was found of one tenant.
type RecoveredUsage struct {
	Tenant, Meter    string
	Admitted, Denied int64
}

// Recover settles what the sessions of a journal's directory left. It ends when all is acknowledged, or with ctx.
func Recover(ctx context.Context, api quotav1.LeaseServiceClient, dir string, secret []byte, log *slog.Logger) (done Recovered, err error) {
	d, err := journal.OpenSealed(dir, secret)
	if err != nil {
		return done, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	k := &keeper{dir: d}
	defer func() { err = errors.Join(err, k.close()) }()
	if k.past, err = k.readPast("", log); err != nil {
		return done, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	done.Refused = k.refused
	for _, p := range k.past {
		lines, err := p.outbox.Lines()
		if err != nil {
			return done, fmt.Errorf("%w: %w", ErrJournal, err)
		}
		for _, l := range lines {
			done.Usage = append(done.Usage, RecoveredUsage(l))
		}
	}
	look := again{dir: d, api: api, log: log}
	for len(k.past) > 0 && err == nil {
		p := k.past[0]
		s := p.outbox.State()
		life := RecoveredLife{Agent: p.life.Agent, Host: p.life.Host, Epoch: p.life.Epoch, Units: p.units, Reports: int64(s.Reports)}
		err = p.settle(ctx, &look, &done)
		s = p.outbox.State()
		life.Settled, life.Aside = life.Units-s.Units-s.AsideUnits, s.AsideUnits
		done.Lives = append(done.Lives, life)
		if err == nil {
			k.past = k.past[1:]
			err = p.life.Drain()
		}
	}
	if err == nil {
		_, err = done.look(ctx, &look, nil)
	}
	return done, err
}

// look sends again what the ledger has forgotten and the journal has.
func (r *Recovered) look(ctx context.Context, a *again, known map[ledger.Epoch]reached) (resent, error) {
	found, err := a.run(ctx, known)
	r.forgotten.merge(found.forgotten)
	r.ResentReports, r.ResentUnits, r.ForgottenUnits = r.ResentReports+found.reports, r.ResentUnits+found.units, r.forgotten.units()
	switch {
	case status.Code(err) == codes.Unimplemented:
		a.log.Warn("the server is older than this program: whether the ledger has forgotten anything cannot be asked")
		err = nil
	case err != nil:
		err = fmt.Errorf("%w: what the ledger may have forgotten: %w", ErrUnsettled, err)
	}
	return found, err
}

// settle sends what a life has left until all of it is acknowledged, or aside.
func (p *past) settle(ctx context.Context, look *again, done *Recovered) error {
	if err := p.life.Sync(); err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	lacking := make(map[ledger.Epoch]int64) // of which the journal has no more
	for fails := 0; ; {
		p.outbox.FreezeRest()
		if p.outbox.Done() {
			return nil
		}
		sent := slices.Clone(p.outbox.Next(maxSend, maxSendBytes))
		call, cancel := context.WithTimeout(ctx, settleTimeout)
		receipts, _, err := settle(call, look.api, sent, nil)
		cancel()
		if at, next, ok := p.outbox.Forgotten(sent, receipts); ok {
			if e := (ledger.Epoch{Agent: sent[at].Agent, Epoch: sent[at].Epoch}); lacking[e] != next {
				lost := sent[at].Before - receipts[at].Total
				receipts = receipts[:at]
				found, err := done.look(ctx, look, map[ledger.Epoch]reached{e: {sent[at].Seq - 1, sent[at].Before}})
				if err != nil {
					return err
				}
				if maps.Copy(lacking, found.lacking); !found.asked { // nobody can be
					lacking[e] = next
					done.forgotten.add(e, lost)
					done.ForgottenUnits = done.forgotten.units()
				}
			}
		}
		progress := false
		if err == nil {
			var fault *agent.Fault
			progress, fault = p.outbox.Receive(sent, receipts, leftEpoch(p.outbox))
			progress = progress || fault != nil
		}
		if progress {
			fails = 0
			continue
		}
		fails++
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %d units of epoch %d, kept in the journal: %w", ErrUnsettled, p.outbox.State().Units, p.life.Epoch, errors.Join(err, context.Cause(ctx)))
		case <-time.After(retryIn(fails, 50*time.Millisecond, settleRetry)):
		}
	}
}
