package recovery

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

	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/usage"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Recovered is what Recover did; package client says what each field is.
type Recovered struct {
	Lives                                      []RecoveredLife
	Usage                                      []RecoveredUsage // of all lives, by tenant and meter
	ResentReports, ResentUnits, ForgottenUnits int64
	Refused                                    int64

	forgotten Forgotten // of which ForgottenUnits is the sum
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
	// Unsealed is units of Units that the ledger has put into quarantine, for the journal does not vouch for them.
	Unsealed int64
}

// RecoveredUsage is one tenant's usage that was found.
type RecoveredUsage struct {
	Tenant, Meter    string
	Admitted, Denied int64
}

// Recover settles what the sessions of a journal's directory left. It ends when all is acknowledged, or with ctx.
func Recover(ctx context.Context, api quotav1.LeaseServiceClient, dir string, secret []byte, log *slog.Logger) (done Recovered, err error) {
	d, err := journal.Open(dir, secret)
	if err != nil {
		return done, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	k := &Journal{Dir: d}
	defer func() { err = errors.Join(err, k.Close()) }()
	if k.Past, err = k.readPast("", log); err != nil {
		return done, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	done.Refused = k.Refused
	for _, p := range k.Past {
		lines, err := p.Outbox.Lines()
		if err != nil {
			return done, fmt.Errorf("%w: %w", ErrJournal, err)
		}
		for _, l := range lines {
			done.Usage = append(done.Usage, RecoveredUsage(l))
		}
	}
	look := Resender{Dir: d, API: api, Log: log}
	for len(k.Past) > 0 && err == nil {
		p := k.Past[0]
		s := p.Outbox.State()
		life := RecoveredLife{Agent: p.Life.Agent, Host: p.Life.Host, Epoch: p.Life.Epoch, Units: p.Units, Reports: int64(s.Reports), Unsealed: p.Unsealed}
		err = p.settle(ctx, &look, &done)
		s = p.Outbox.State()
		life.Settled, life.Aside = life.Units-s.Units-s.AsideUnits, s.AsideUnits
		done.Lives = append(done.Lives, life)
		if err == nil {
			k.Past = k.Past[1:]
			err = p.Life.Drain()
		}
	}
	if err == nil {
		_, err = done.look(ctx, &look, nil)
	}
	return done, err
}

// look sends again what the ledger has forgotten and the journal has.
func (r *Recovered) look(ctx context.Context, a *Resender, known map[ledger.Epoch]Reached) (Resent, error) {
	found, err := a.Run(ctx, known)
	r.forgotten.Merge(found.Forgotten)
	r.ResentReports, r.ResentUnits, r.ForgottenUnits = r.ResentReports+found.Reports, r.ResentUnits+found.Units, r.forgotten.Units()
	switch {
	case status.Code(err) == codes.Unimplemented:
		a.Log.Warn("the server is older than this program: whether the ledger has forgotten anything cannot be asked")
		err = nil
	case err != nil:
		err = fmt.Errorf("%w: what the ledger may have forgotten: %w", ErrUnsettled, err)
	}
	return found, err
}

// settle sends what a life has left until all of it is acknowledged, or aside.
func (p *Past) settle(ctx context.Context, look *Resender, done *Recovered) error {
	if err := p.Life.Sync(); err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	lacking := make(map[ledger.Epoch]int64) // of which the journal has no more
	for fails := 0; ; {
		p.Outbox.FreezeRest()
		if p.Outbox.Done() {
			return nil
		}
		sent := slices.Clone(p.Outbox.Next(MaxSend, MaxSendBytes))
		call, cancel := context.WithTimeout(ctx, SettleTimeout)
		receipts, _, err := Settle(call, look.API, sent, nil)
		cancel()
		if at, next, ok := p.Outbox.Forgotten(sent, receipts); ok {
			if e := (ledger.Epoch{Agent: sent[at].Agent, Epoch: sent[at].Epoch}); lacking[e] != next {
				lost := sent[at].Before - receipts[at].Total
				receipts = receipts[:at]
				found, err := done.look(ctx, look, map[ledger.Epoch]Reached{e: {sent[at].Seq - 1, sent[at].Before}})
				if err != nil {
					return err
				}
				if maps.Copy(lacking, found.Lacking); !found.Asked { // nobody can be
					lacking[e] = next
					done.forgotten.Add(e, lost)
					done.ForgottenUnits = done.forgotten.Units()
				}
			}
		}
		progress := false
		if err == nil {
			var fault *usage.Fault
			progress, fault = p.Outbox.Receive(sent, receipts, LeftEpoch(p.Outbox))
			progress = progress || fault != nil
		}
		if progress {
			fails = 0
			continue
		}
		fails++
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %d units of epoch %d, kept in the journal: %w", ErrUnsettled, p.Outbox.State().Units, p.Life.Epoch, errors.Join(err, context.Cause(ctx)))
		case <-time.After(retry.In(fails, 50*time.Millisecond, SettleRetry)):
		}
	}
}
