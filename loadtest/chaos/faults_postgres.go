package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

var postgresFaults = []fault{
	{name: "postgres-immediate", lane: "postgres", what: "Postgres ends as by `-m immediate` and starts again after recovery", do: func(ctx context.Context, s *site, random *rand.Rand) error {
		return s.stopPostgres(ctx, between(random, 200*time.Millisecond, 2*time.Second))
	}},
	{name: "postgres-backends", lane: "postgres", what: "all of the servers' backends are terminated, three times", do: terminateBackends},
	{name: "postgres-away", lane: "postgres", what: "Postgres is away for long (minutes; 8 s in CI)", do: func(ctx context.Context, s *site, _ *rand.Rand) error { return s.stopPostgres(ctx, s.o.away) }},
	{name: "ledger-restored", lane: "postgres", once: true, named: true, what: "Postgres is put back to a base backup of seconds before (only where it is named)", do: restoreLedger},
	{name: "ledger-promoted", lane: "postgres", once: true, named: true, what: "a standby of Postgres takes over without its last seconds (only where it is named)", do: promoteLedger},
}

// restoreLedger takes a backup, lets reports be acknowledged, and puts the backup in the ledger's place.
func restoreLedger(ctx context.Context, s *site, random *rand.Rand) error {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	dir := filepath.Join(s.dir, "postgres", "backup")
	if err := s.postgres.Backup(back, dir); err != nil {
		return err
	}
	return s.goBack(ctx, back, random, func() error {
		if err := s.postgres.Restore(back, dir); err != nil {
			return err
		}
		return s.postgres.Start(back)
	})
}

// promoteLedger starts a standby, cuts it off, lets reports be acknowledged, and has it take over.
func promoteLedger(ctx context.Context, s *site, random *rand.Rand) error {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	dir := filepath.Join(s.dir, "standby")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	standby, err := s.postgres.Standby(back, dir)
	if err != nil {
		return err
	}
	if err := standby.Deafen(back, s.postgres); err != nil {
		return errors.Join(err, standby.Close())
	}
	return s.goBack(ctx, back, random, func() error {
		if err := errors.Join(s.postgres.Close(), standby.Promote(back)); err != nil {
			return errors.Join(err, standby.Close())
		}
		s.postgres = standby
		u, err := url.Parse(standby.URL(ledgerDB, "", ""))
		if err != nil {
			return err
		}
		for _, v := range s.servers {
			v.postgres.Retarget(u.Host)
		}
		return nil
	})
}

// goBack replaces this ledger by an older copy of it. First it waits until reports with units were acknowledged that
// the copy does not have: the replacement forgets them.
func (s *site) goBack(ctx, back context.Context, random *rand.Rand, replace func() error) error {
	units := func() (reports, units int64, err error) {
		db, err := pgx.Connect(back, s.postgres.URL(ledgerDB, "", ""))
		if err != nil {
			return 0, 0, err
		}
		err = db.QueryRow(back, "SELECT count(*), coalesce(sum(total_after - total_before), 0)::bigint FROM reports").Scan(&reports, &units)
		return reports, units, errors.Join(err, db.Close(back))
	}
	_, before, err := units()
	if err != nil {
		return err
	}
	s.sleep(ctx, between(random, 2*time.Second, 5*time.Second))
	err = s.until(back, "reports are acknowledged", func() bool {
		_, n, e := units()
		err = errors.Join(err, e)
		return e != nil || n > before
	})
	if err != nil {
		return err
	}
	reports, had, err := units()
	if err != nil {
		return err
	}
	if err := replace(); err != nil {
		return err
	}
	s.wentBack = true
	// These are lower bounds. Reports went on being acknowledged until the replacement, and are sent again by now.
	s.say("postgres: the ledger went back: at the last look it had %d units in %d reports, %d units before", had, reports, before)
	return nil
}

func (s *site) stopPostgres(ctx context.Context, away time.Duration) error {
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), away+undo)
	defer cancel()
	if err := s.postgres.Stop(back); err != nil {
		return err
	}
	s.say("postgres: stopped at once, for %v", away)
	s.sleep(ctx, away)
	if err := s.postgres.Start(back); err != nil {
		return err
	}
	s.say("postgres: recovered")
	return nil
}

func terminateBackends(ctx context.Context, s *site, random *rand.Rand) (err error) {
	db, err := pgx.Connect(ctx, s.postgres.URL(ledgerDB, "", ""))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	for range 3 {
		var n int
		if err := db.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'quota_app'").Scan(&n); err != nil {
			return err
		}
		s.say("postgres: %d backends terminated", n)
		s.sleep(ctx, between(random, 200*time.Millisecond, time.Second))
	}
	return nil
}
