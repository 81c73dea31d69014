package boot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/ledger/sqlbooks"
	"github.com/f4ee788f/quota/internal/ledger/sqliteledger"
	"github.com/f4ee788f/quota/migrations"
)

// Owner is the owner of a ledger, for what no server may do. Close it.
type Owner struct {
	*sqlbooks.Owner
	// Fold folds what is queued in a SQLite file, which no server has open meanwhile. It is nil for Postgres, where
	// servers fold.
	Fold    func(context.Context) error
	closers []io.Closer
}

// OpenOwner opens the ledger that the configuration names. It is Postgres by LedgerOwnerURL, or else the SQLite file,
// which it locks against servers.
func OpenOwner(ctx context.Context, c *Config) (_ *Owner, err error) {
	if c.LedgerOwnerURL != "" {
		db, err := migrations.Owner(c.LedgerOwnerURL)
		if err != nil {
			return nil, err
		}
		o := &Owner{Owner: sqlbooks.NewOwner(db, sqlbooks.Postgres, nil), closers: []io.Closer{db}}
		if err := ready(ctx, db); err != nil {
			return nil, errors.Join(err, o.Close())
		}
		return o, nil
	}
	path, url, err := c.ledger()
	switch {
	case err != nil:
		return nil, fmt.Errorf("--ledger: %w", err)
	case url != "":
		return nil, errors.New("--ledger-owner-url is needed: servers' roles may not archive a Postgres ledger")
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("there is no ledger: %w", err)
	}
	if err := own(path); err != nil {
		return nil, err
	}
	held, err := hold(path + ".lock")
	if err != nil {
		return nil, err
	}
	store, err := sqliteledger.Open(ctx, path, ledger.Options{})
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	fold := func(ctx context.Context) error {
		for {
			if _, left, err := store.Fold(ctx, time.Now()); err != nil || !left {
				return err
			}
		}
	}
	return &Owner{sqlbooks.NewOwner(store.DB(), sqlbooks.SQLite, nil), fold, []io.Closer{held, store}}, nil
}

// ready reports why the database's schema is not of this release.
func ready(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('archives') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	if !there {
		return errors.New("the ledger's schema is of an older release: run `quota-server migrate` first")
	}
	return nil
}

// Close frees the ledger.
func (o *Owner) Close() error {
	var errs []error
	for i := len(o.closers) - 1; i >= 0; i-- {
		errs = append(errs, o.closers[i].Close())
	}
	return errors.Join(errs...)
}
