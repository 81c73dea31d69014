package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

var postgresFaults = []fault{
	{name: "postgres-immediate", lane: "postgres", what: "Postgres ends as by `-m immediate` and starts again after recovery", do: func(ctx context.Context, s *site, random *rand.Rand) error {
		return s.stopPostgres(ctx, between(random, 200*time.Millisecond, 2*time.Second))
	}},
	{name: "postgres-backends", lane: "postgres", what: "all of the servers' backends are terminated, three times", do: terminateBackends},
	{name: "postgres-away", lane: "postgres", what: "Postgres is away for long (minutes; 8 s in CI)", do: func(ctx context.Context, s *site, _ *rand.Rand) error { return s.stopPostgres(ctx, s.o.away) }},
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
