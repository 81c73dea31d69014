// Package migrations holds the schema of both engines as numbered SQL, and applies it. Migrations only go forward and
// are never edited once landed. Numbers below 0100 are the ledger's. Those from 0101 on are for policy, tenants and
// keys. Each file grants quota_app what it needs. Files may land out of order between the ranges.
//
// Each migration is one transaction: a crash leaves all of it or nothing.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// The two roles of the database. The owner owns everything and cannot log in; the user that migrates acts as it. The
// app role owns nothing.
const (
	OwnerRole = "quota_owner"
	AppRole   = "quota_app"
)

const versionTable = "schema_version"

// lockTimeout is how long a migration waits for a table, in Postgres's words. Tests do
// not wait that long.
var lockTimeout = "10s"

// Option of Postgres.
type Option func(*postgresOptions)

type postgresOptions struct {
	password string
}

// AppPassword lets quota_app log in with the password. Without it the role's login stays as it is. A new role may then
// log in by the server's other methods of authentication.
func AppPassword(password string) Option {
	return func(o *postgresOptions) { o.password = password }
}

// Postgres brings the schema up to date, with the owner's URL. Its user is a superuser, or a role that may create roles
// and owns the database. Where both roles are there, a member of quota_owner suffices. The schema is the first of the
// URL's search_path, or public; it is made if missing. Servers that start together wait for one another, for as long as
// ctx allows.
//
// The lock is ours, not goose's session locker. The roles belong to the whole server, and have to be made under it as
// well.
func Postgres(ctx context.Context, ownerURL string, options ...Option) (err error) {
	var o postgresOptions
	for _, set := range options {
		set(&o)
	}
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) // frees the lock; an error changes nothing
	schema := firstSchema(config.RuntimeParams["search_path"])
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended('quota.migrations', 0))"); err != nil {
		return fmt.Errorf("migrations: lock: %w", err)
	}
	if err := prepare(ctx, conn, schema, o); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	// Reports that wait to be settled queue behind a statement that waits for a table, such as during a backup that
	// reads it.
	config.RuntimeParams["lock_timeout"] = lockTimeout
	db := asOwner(config, schema)
	defer func() { err = errors.Join(err, db.Close()) }()
	err = up(ctx, goose.DialectPostgres, db, "postgres")
	if isCode(err, "55P03") {
		err = fmt.Errorf("%w: something has held a table of the ledger for %s, such as a verification or a backup; what was done before stays, run it again later", err, lockTimeout)
	}
	return err
}

// Owner returns connections to a database that has the schema, which act as its owner. The URL is of a superuser, or of
// a member of quota_owner. It fails only where the URL cannot be read.
func Owner(ownerURL string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return asOwner(config, firstSchema(config.RuntimeParams["search_path"])), nil
}

func asOwner(config *pgx.ConnConfig, schema string) *sql.DB {
	be := func(ctx context.Context, c *pgx.Conn) error {
		// The path holds only this schema, because functions keep the path that they are made with.
		path := pgx.Identifier{schema}.Sanitize() + ", pg_temp"
		_, err := c.Exec(ctx, "SET ROLE "+OwnerRole+"; SET search_path TO "+path)
		return err
	}
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(be))
}

// SQLite brings the schema of an embedded database up to date.
func SQLite(ctx context.Context, db *sql.DB) error {
	return up(ctx, goose.DialectSQLite3, db, "sqlite")
}

// up hands goose each file as one text, which the database takes apart. Goose's own parser uses megabytes of memory for
// every line. With the race detector it took longer than everything else that a test of a ledger does.
func up(ctx context.Context, dialect goose.Dialect, db *sql.DB, dir string) error {
	names, err := fs.Glob(files, dir+"/*.sql")
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	var all []*goose.Migration
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return fmt.Errorf("migrations: %w", err)
		}
		run := func(ctx context.Context, tx *sql.Tx) error {
			text, err := files.ReadFile(name)
			if err == nil {
				_, err = tx.ExecContext(ctx, string(text)) // the annotations are comments
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunTx: run}, nil))
	}
	p, err := goose.NewProvider(dialect, db, nil, goose.WithGoMigrations(all...),
		goose.WithTableName(versionTable), goose.WithAllowOutofOrder(true), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}

// prepare makes the roles and the schema, and lets this user act as the owner.
func prepare(ctx context.Context, conn *pgx.Conn, schema string, o postgresOptions) error {
	for _, role := range []string{OwnerRole, AppRole} {
		var there bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&there); err != nil {
			return err
		}
		if there {
			continue
		}
		login := "NOLOGIN"
		if role == AppRole {
			login = "LOGIN"
		}
		if err := again(ctx, conn, "CREATE ROLE "+role+" "+login); err != nil && !isCode(err, "42710", "23505") {
			return fmt.Errorf("create role %s, or have it created: %w", role, err)
		}
	}
	if o.password != "" {
		quoted, err := conn.PgConn().EscapeString(o.password)
		if err != nil {
			return err
		}
		if err := again(ctx, conn, "ALTER ROLE "+AppRole+" LOGIN PASSWORD '"+quoted+"'"); err != nil {
			return fmt.Errorf("set the password of %s: %w", AppRole, err)
		}
	}
	// From Postgres 16 on, the user that makes a role is a member that may not act as it yet.
	var member, exists, super bool
	var encoding string
	err := conn.QueryRow(ctx, `SELECT pg_has_role(current_user, $1,
			CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END),
		EXISTS (SELECT FROM pg_namespace WHERE nspname = $2),
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user), current_setting('server_encoding')`,
		OwnerRole, schema).Scan(&member, &exists, &super, &encoding)
	if err != nil {
		return err
	}
	if encoding != "UTF8" {
		// A tenant's name that the encoding cannot hold would stop the fold for ever.
		return fmt.Errorf("the database's encoding is %s; it must be UTF8", encoding)
	}
	if !member && !super {
		if err := again(ctx, conn, "GRANT "+OwnerRole+" TO CURRENT_USER"); err != nil {
			return fmt.Errorf("become a member of %s: %w", OwnerRole, err)
		}
	}
	name := pgx.Identifier{schema}.Sanitize()
	if !exists {
		if err := again(ctx, conn, "CREATE SCHEMA "+name+" AUTHORIZATION "+OwnerRole); err != nil {
			return fmt.Errorf("create schema %s: %w", schema, err)
		}
	}
	// Without the right to grant, these statements only warn; the check below decides.
	for _, grant := range []string{
		"REVOKE CREATE ON SCHEMA " + name + " FROM PUBLIC", // Postgres 14 still gives it on public
		"GRANT USAGE, CREATE ON SCHEMA " + name + " TO " + OwnerRole,
		"GRANT USAGE ON SCHEMA " + name + " TO " + AppRole,
	} {
		if err := again(ctx, conn, grant); err != nil && !isCode(err, "42501") {
			return err
		}
	}
	var may, sees bool
	err = conn.QueryRow(ctx, "SELECT has_schema_privilege($1, $3, 'CREATE'), has_schema_privilege($2, $3, 'USAGE')",
		OwnerRole, AppRole, schema).Scan(&may, &sees)
	if err != nil {
		return err
	}
	if !may || !sees {
		return fmt.Errorf("schema %s: grant USAGE, CREATE to %s and USAGE to %s", schema, OwnerRole, AppRole)
	}
	return nil
}

// again executes a statement that may collide with another database's migrations. Roles belong to the server, and
// concurrent changes of one fail instead of waiting.
func again(ctx context.Context, conn *pgx.Conn, statement string) error {
	for attempt := 0; ; attempt++ {
		_, err := conn.Exec(ctx, statement)
		if err == nil || attempt == 10 || !isCode(err, "XX000") {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(attempt+1) * 10 * time.Millisecond):
		}
	}
}

func isCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, c := range codes {
		if pg.Code == c {
			return true
		}
	}
	return false
}

// firstSchema returns the first schema of a search_path, or public.
func firstSchema(path string) string {
	first, _, _ := strings.Cut(path, ",")
	first = strings.Trim(strings.TrimSpace(first), `"`)
	if first == "" || first == "$user" {
		return "public"
	}
	return first
}
