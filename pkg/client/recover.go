package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/recovery"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Recovered says what Recover did.
type Recovered struct {
	Lives []RecoveredLife
	Usage []RecoveredUsage // of all lives, by tenant and meter
	// A restored ledger may have forgotten usage that was settled before. Reports and units that the journal still has
	// are settled again: ResentReports, ResentUnits. ForgottenUnits are those that it does not have any more.
	ResentReports, ResentUnits, ForgottenUnits int64
	// Refused is bytes of the journal that did not verify under its secret. They are kept in files that the log names.
	Refused int64
}

// RecoveredLife is one start of a client that had not settled all its usage.
type RecoveredLife struct {
	Agent   string
	Host    string // where it ran
	Epoch   int64
	Units   int64 // found in the journal, not acknowledged before
	Settled int64 // of these, acknowledged now
	Reports int64 // that carried them
	Aside   int64 // units that the ledger did not take: only an operator can place them
	// Unsealed is the part of Units that the journal's secret did not seal yet. They are in quarantine, for an operator
	// to retry or discard.
	Unsealed int64
}

// RecoveredUsage is the usage found of one tenant and meter, in units.
type RecoveredUsage struct {
	Tenant, Meter    string
	Admitted, Denied int64
}

// Recover settles the usage that clients left in a journal's directory. The directory may come from another machine,
// and nobody else may use it meanwhile. Nothing is settled twice, however often and wherever it is recovered.
//
// It ends when all is acknowledged, or with ctx. Then the error wraps ErrUnsettled, and the usage left can be recovered
// again. Of the options it takes those that say how to reach the server, WithJournalSecret and WithLogger. It fails
// with ErrOption or ErrJournal as Dial does.
func Recover(ctx context.Context, target, dir string, opts ...Option) (all Recovered, err error) {
	var cfg config
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.session.Log == nil {
		cfg.session.Log = connect.Logger()
	}
	conn, err := cfg.connect.Servers(target)
	if err != nil {
		return all, fmt.Errorf("%w: %w", ErrOption, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	api := quotav1.NewLeaseServiceClient(conn)
	done, err := recovery.Recover(ctx, api, dir, cfg.session.JournalSecret, cfg.session.Log)
	all = Recovered{
		ResentReports: done.ResentReports, ResentUnits: done.ResentUnits, ForgottenUnits: done.ForgottenUnits,
		Refused: done.Refused,
	}
	for _, l := range done.Lives {
		all.Lives = append(all.Lives, RecoveredLife(l))
	}
	for _, u := range done.Usage {
		all.Usage = append(all.Usage, RecoveredUsage(u))
	}
	return all, err
}
