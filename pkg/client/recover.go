package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/recovery"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Recovered is what Recover did.
type Recovered struct {
	Lives []RecoveredLife
	Usage []RecoveredUsage // of all lives, by tenant and meter
	// What a ledger that went back had forgotten of what was settled before, and the journal still has: reports and
	// their units, settled again now; and units that it has forgotten and the journal no longer has.
	ResentReports, ResentUnits, ForgottenUnits int64
	// Refused is bytes of the journal that did not verify under its secret, and are kept aside in files that the log names.
	Refused int64
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

// Recover settles what the clients of a journal's directory left, those of a host that is no more: the directory may come
// from another machine, and is used by nobody else meanwhile. It ends when all is acknowledged, or
// with ctx, and then returns an error that wraps ErrUnsettled; what is left can be recovered
// again. Of the options those count that say how to reach the server, WithJournalSecret and WithLogger. Nothing is settled twice,
// however often and wherever a journal is recovered.
func Recover(ctx context.Context, target, dir string, opts ...Option) (all Recovered, err error) {
	var cfg config
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.logger == nil {
		cfg.logger = connect.Logger()
	}
	conn, err := cfg.connect.Servers(target)
	if err != nil {
		return all, fmt.Errorf("%w: %w", ErrOption, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	done, err := recovery.Recover(ctx, quotav1.NewLeaseServiceClient(conn), dir, cfg.journalSecret, cfg.logger)
	all = Recovered{
		ResentReports: done.ResentReports, ResentUnits: done.ResentUnits, ForgottenUnits: done.ForgottenUnits, Refused: done.Refused,
	}
	for _, l := range done.Lives {
		all.Lives = append(all.Lives, RecoveredLife(l))
	}
	for _, u := range done.Usage {
		all.Usage = append(all.Usage, RecoveredUsage(u))
	}
	return all, err
}
