package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Backup copies the data of a running server to dir, which must not be there.
func (p *Postgres) Backup(ctx context.Context, dir string) error { return p.copyTo(ctx, dir) }

// copyTo runs pg_basebackup.
func (p *Postgres) copyTo(ctx context.Context, dir string, more ...string) error {
	if p.o.Launch != nil {
		return errors.New("engines: a server in a container is not copied")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	args := append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres", "-D", dir, "-X", "stream", "-c", "fast", "--no-sync"}, more...)
	cmd := exec.CommandContext(ctx, filepath.Join(p.o.Bin, "pg_basebackup"), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "PGPASSWORD=" + p.password}
	if p.uid > 0 {
		if err := os.Chown(dir, p.uid, p.gid); err != nil {
			return fmt.Errorf("engines: %w", err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("engines: pg_basebackup: %w: %s", err, out)
	}
	return nil
}

// Restore stops the server at once, and puts a backup in the place of its data. Later commits are gone. Start starts it
// again.
func (p *Postgres) Restore(ctx context.Context, dir string) error {
	data := filepath.Join(p.dir, "data")
	if err := p.Stop(ctx); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(data), os.Rename(dir, data)); err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	return nil
}

// Standby starts a replica of a running server below dir. It follows the server, which does not wait for it.
func (p *Postgres) Standby(ctx context.Context, dir string) (*Postgres, error) {
	ports, err := reservePorts(1)
	if err != nil {
		return nil, err
	}
	s := &Postgres{o: p.o, dir: dir, port: ports.numbers[0], password: p.password, uid: p.uid, gid: p.gid, ports: ports}
	if p.uid > 0 {
		err = os.Chown(dir, p.uid, p.gid)
	}
	if err == nil {
		err = p.copyTo(ctx, filepath.Join(dir, "data"), "-R")
	}
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Deafen cuts a standby off from its primary, once it has everything that is committed there now.
func (p *Postgres) Deafen(ctx context.Context, primary *Postgres) error {
	var at string
	if err := primary.ask(ctx, "SELECT pg_current_wal_lsn()::text", &at); err != nil {
		return err
	}
	var has, cut bool
	err := waitFor(ctx, func() bool {
		return p.ask(ctx, "SELECT pg_last_wal_replay_lsn() >= '"+at+"'", &has) == nil && has
	})
	if err == nil {
		err = p.ask(ctx, "ALTER SYSTEM SET primary_conninfo = ''")
	}
	if err == nil {
		err = p.ask(ctx, "SELECT pg_reload_conf()", &has)
	}
	if err == nil {
		err = waitFor(ctx, func() bool {
			return p.ask(ctx, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)", &cut) == nil && cut
		})
	}
	if err != nil {
		return fmt.Errorf("engines: cut a standby off: %w", err)
	}
	return nil
}

// Promote makes a standby a primary.
func (p *Postgres) Promote(ctx context.Context) error {
	var done bool
	if err := p.ask(ctx, "SELECT pg_promote(true, 30)", &done); err != nil || !done {
		return fmt.Errorf("engines: promote a standby: done %t: %w", done, err)
	}
	return nil
}

// ask runs a statement as superuser, and scans its row if there is a target.
func (p *Postgres) ask(ctx context.Context, statement string, to ...any) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres", "", "")+"&connect_timeout=2")
	if err != nil {
		return err
	}
	if len(to) > 0 {
		err = conn.QueryRow(ctx, statement).Scan(to...)
	} else {
		_, err = conn.Exec(ctx, statement)
	}
	return errors.Join(err, conn.Close(ctx))
}
