package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

var _ policystore.Store = (*Store)(nil)

// Engine is the kind of the database.
type Engine uint8

// The engines with a schema.
const (
	SQLite Engine = iota + 1
	Postgres
)

// Store is a policystore.Store on a database that has the schema. It is safe for
// concurrent use, and holds no goroutine.
type Store struct {
	db     *sql.DB
	engine Engine
	now    func() time.Time

	mu        sync.Mutex
	documents map[versionID]*policy.Document // those last read: the one in force and the shadow
}

// versionID is a version in memory. A restored database may give a number that it forgot to another version, made at
// another time.
type versionID struct{ number, createdMS int64 }

// New returns a store on db, which stays the caller's to close. now is the clock for what is written; nil for time.Now.
func New(db *sql.DB, engine Engine, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{db: db, engine: engine, now: now}
}

// Heads implements policystore.Store.
func (s *Store) Heads(ctx context.Context) (policystore.Heads, error) {
	var h policystore.Heads
	err := s.db.QueryRowContext(ctx, "SELECT version, tenants, switches, keys, shadow, coalesce((SELECT min(at_ms) FROM (SELECT at_ms FROM override_edges UNION ALL SELECT at_ms FROM plan_changes WHERE failed = '') AS due), 0) FROM policy_heads WHERE id = 1").
		Scan(&h.Version, &h.Tenants, &h.Switches, &h.Keys, &h.Shadow, &h.Due)
	return h, unavailable("read heads", err)
}

// querier is the part of a database or a transaction that reads need.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// tx is a change under way: it has the row of heads.
type tx struct {
	*sql.Tx
	s      *Store
	heads  policystore.Heads
	audits int64
	log    []ledger.AuditRow // to write
	wrote  bool              // something that is in no audit log
}

// errDryRun rolls back a transaction whose result is wanted and whose effect is not.
var errDryRun = errors.New("sqlstore: dry run")

// begin begins a transaction that, after waiting for the change before it, sees that change.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	var options sql.TxOptions
	if s.engine == Postgres {
		// This overrides the database's default. At a higher level, waiting for the change before would end in a
		// serialization failure.
		options.Isolation = sql.LevelReadCommitted
	}
	return s.db.BeginTx(ctx, &options)
}

// exec executes a statement in a transaction of its own. It is for writes that are no change of the policy.
func (s *Store) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // does nothing once committed
	r, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return r, tx.Commit()
}

// change runs do in a transaction of its own, alone among all changes of all servers.
func (s *Store) change(ctx context.Context, do func(t *tx) error) error {
	sqlTx, err := s.begin(ctx)
	if err != nil {
		return unavailable("begin", err)
	}
	defer sqlTx.Rollback() // does nothing once committed
	t := &tx{Tx: sqlTx, s: s}
	// Writing before reading takes the lock in both engines, and then reads what the
	// change before has committed.
	err = t.QueryRowContext(ctx, "UPDATE policy_heads SET id = id WHERE id = 1 RETURNING version, tenants, switches, keys, audit, shadow").
		Scan(&t.heads.Version, &t.heads.Tenants, &t.heads.Switches, &t.heads.Keys, &t.audits, &t.heads.Shadow)
	if err != nil {
		return unavailable("take heads", err)
	}
	if err := do(t); err != nil {
		if errors.Is(err, errDryRun) {
			return nil
		}
		return err
	}
	if len(t.log) == 0 && !t.wrote {
		return nil // nothing was changed
	}
	if err := t.writeAudit(ctx); err != nil {
		return unavailable("write audit", err)
	}
	if _, err := t.ExecContext(ctx, "UPDATE policy_heads SET version = $1, tenants = $2, switches = $3, keys = $4, audit = $5, shadow = $6 WHERE id = 1",
		t.heads.Version, t.heads.Tenants, t.heads.Switches, t.heads.Keys, t.audits, t.heads.Shadow); err != nil {
		return unavailable("move heads", err)
	}
	return unavailable("commit", t.Commit())
}

// audit notes a change for the log. before and after are written as JSON, nil as empty.
func (t *tx) audit(actor, action, object string, before, after any) error {
	if actor == "" || len(actor) > policystore.MaxActor {
		return fmt.Errorf("%w: a change is made by someone, whose name has 1 to %d bytes", policystore.ErrInvalid, policystore.MaxActor)
	}
	texts := [2]string{}
	for i, v := range []any{before, after} {
		if v == nil {
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("audit of %s: %w", action, err)
		}
		texts[i] = string(b)
	}
	t.audits++
	t.log = append(t.log, ledger.AuditRow{Number: t.audits, At: t.s.now().UnixMilli(), Actor: actor, Action: action, Object: object, Before: texts[0], After: texts[1]})
	return nil
}

// writeAudit writes the noted changes, each row chained to the one before it.
func (t *tx) writeAudit(ctx context.Context) error {
	if len(t.log) == 0 {
		return nil
	}
	chain := []byte{}
	if err := t.QueryRowContext(ctx, "SELECT chain FROM audit_log WHERE number = $1", t.log[0].Number-1).Scan(&chain); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	rows := make([][]any, len(t.log))
	for i := range t.log {
		r := &t.log[i]
		chain = r.Next(chain)
		rows[i] = []any{r.Number, r.At, r.Actor, r.Action, r.Object, r.Before, r.After, chain}
	}
	return t.insert(ctx, "INSERT INTO audit_log (number, at_ms, actor, action, object, before, after, chain) VALUES ", "", rows)
}

// Rows and ids of one statement, at most. SQLite's driver looks each parameter up
// among all: with 500 rows a statement, 10,000 tenants took 6 s instead of 1.
const (
	insertRows = 50
	selectIDs  = 256
)

// among is a condition: a column has one of the texts of a parameter, which texts makes. So many texts take one
// parameter.
func (s *Store) among(column, param string) string {
	if s.engine == Postgres {
		return column + " = ANY(CAST(" + param + " AS text[]))"
	}
	return column + " IN (SELECT value FROM json_each(" + param + "))"
}

func (s *Store) texts(all []string) any {
	if all == nil {
		all = []string{} // none is not unknown
	}
	if s.engine == Postgres {
		return all
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings
	}
	return string(text)
}

// insert writes rows, many in a statement.
func (t *tx) insert(ctx context.Context, head, tail string, rows [][]any) error {
	for len(rows) > 0 {
		n := min(len(rows), insertRows)
		var b strings.Builder
		b.WriteString(head)
		var args []any
		for i, row := range rows[:n] {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('(')
			for j, v := range row {
				if j > 0 {
					b.WriteByte(',')
				}
				args = append(args, v)
				b.WriteByte('$')
				b.WriteString(strconv.Itoa(len(args)))
			}
			b.WriteByte(')')
		}
		b.WriteString(tail)
		if _, err := t.ExecContext(ctx, b.String(), args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// keptDocuments bounds the parsed documents in memory.
const keptDocuments = 4

// document returns the document of a version, nil for version 0.
func (t *tx) document(ctx context.Context, version int64) (*policy.Document, error) {
	if version == 0 {
		return nil, nil
	}
	var created sql.NullInt64 // none where there is no such version
	if err := t.QueryRowContext(ctx, "SELECT max(created_ms) FROM policy_versions WHERE number = $1", version).Scan(&created); err != nil {
		return nil, unavailable("read version", err)
	}
	return t.s.document(ctx, t, versionID{version, created.Int64})
}

// document returns the document of a version, nil for version 0. It keeps the last few.
func (s *Store) document(ctx context.Context, q querier, id versionID) (*policy.Document, error) {
	if id.number == 0 {
		return nil, nil
	}
	s.mu.Lock()
	doc := s.documents[id]
	s.mu.Unlock()
	if doc != nil {
		return doc, nil
	}
	v, err := readVersion(ctx, q, id.number)
	if err != nil {
		return nil, err
	}
	if doc, err = policy.Parse(v.File, []byte(v.Text)); err != nil {
		// The message holds the error's text, not the error: this is not the caller's document, and its faults must not
		// be answered as such. An earlier program accepted what this one refuses.
		return nil, unreadError(fmt.Sprintf("stored version %d does not hold any more: %s", id.number, err.Error()))
	}
	s.mu.Lock()
	if s.documents == nil || len(s.documents) >= keptDocuments {
		s.documents = make(map[versionID]*policy.Document, keptDocuments)
	}
	s.documents[versionID{v.Number, v.Created.UnixMilli()}] = doc
	s.mu.Unlock()
	return doc, nil
}

// unreadError says why this program cannot read a stored version.
type unreadError string

func (e unreadError) Error() string { return string(e) }

// Switches implements policystore.Store.
func (s *Store) Switches(ctx context.Context) (limit.Switches, error) {
	return readSwitches(ctx, s.db)
}

func readSwitches(ctx context.Context, q querier) (limit.Switches, error) {
	var sw limit.Switches
	var denied string
	if err := q.QueryRowContext(ctx, "SELECT mode, denied, (SELECT switches FROM policy_heads WHERE id = 1) FROM policy_switches WHERE id = 1").
		Scan(&sw.Mode, &denied, &sw.Revision); err != nil {
		return sw, unavailable("read switches", err)
	}
	if err := json.Unmarshal([]byte(denied), &sw.Denied); err != nil {
		return sw, fmt.Errorf("read switches: %w", err)
	}
	return sw, nil
}

// maxRevision is the largest integer that a double holds exactly: far beyond any time in milliseconds.
const maxRevision = 1<<53 - 1

// SetSwitches implements policystore.Store. Denied tenants are stored in order, each once;
// they need not exist.
func (s *Store) SetSwitches(ctx context.Context, actor string, sw limit.Switches) (limit.Switches, error) {
	if sw.Mode > limit.ModeShadowAll || len(sw.Denied) > limit.MaxDenied {
		return limit.Switches{}, fmt.Errorf("%w: mode must be known, and at most %d tenants denied", policystore.ErrInvalid, limit.MaxDenied)
	}
	for _, id := range sw.Denied {
		if !limit.ValidTenant(id) {
			return limit.Switches{}, fmt.Errorf("%w: %s is not a tenant's id: it has %s", policystore.ErrInvalid, limit.Quote(id), limit.TenantForm)
		}
	}
	if sw.Revision < 0 || sw.Revision > maxRevision {
		return limit.Switches{}, fmt.Errorf("%w: revision is %d; it must be 0 to %d", policystore.ErrInvalid, sw.Revision, int64(maxRevision))
	}
	if sw.Revision < 0 || sw.Revision > limit.MaxSwitchRevision {
		return limit.Switches{}, fmt.Errorf("%w: the revision of switches must be 0 to %d, got %d", policystore.ErrInvalid, limit.MaxSwitchRevision, sw.Revision)
	}
	sw.Denied = sortedSet(sw.Denied)
	err := s.change(ctx, func(t *tx) error {
		before, err := readSwitches(ctx, t)
		if err != nil {
			return err
		}
		same := before.Mode == sw.Mode && equal(before.Denied, sw.Denied)
		switch {
		case sw.Revision == 0 && same:
			sw.Revision = before.Revision
			return nil
		case sw.Revision == 0:
			sw.Revision = before.Revision + 1
		case sw.Revision <= before.Revision:
			return fmt.Errorf("%w: the switches stored have revision %d, and these %d", policystore.ErrConflict, before.Revision, sw.Revision)
		}
		b, err := json.Marshal(sw.Denied)
		if err != nil {
			return fmt.Errorf("write switches: %w", err)
		}
		if _, err := t.ExecContext(ctx, "UPDATE policy_switches SET mode = $1, denied = $2 WHERE id = 1", int64(sw.Mode), string(b)); err != nil {
			return unavailable("write switches", err)
		}
		t.heads.Switches = sw.Revision
		return t.audit(actor, "switches.set", "switches", switchesJSON(before), switchesJSON(sw))
	})
	if err != nil {
		return limit.Switches{}, err
	}
	return sw, nil
}

func switchesJSON(s limit.Switches) any {
	return map[string]any{"mode": s.Mode.String(), "denied": s.Denied}
}

// Audit implements policystore.Store.
func (s *Store) Audit(ctx context.Context, q policystore.AuditQuery) ([]policystore.AuditRow, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT number, at_ms, actor, action, object, before, after FROM audit_log
		WHERE (CAST($1 AS bigint) = 0 OR number < $1) AND (CAST($3 AS text) = '' OR actor = $3)
		AND substr(action, 1, length(CAST($4 AS text))) = $4 AND (CAST($5 AS text) = '' OR object = $5)
		ORDER BY number DESC LIMIT $2`, q.Before, page(q.N), q.Actor, q.Action, q.Object)
	return collect(rows, err, "read audit", func(r *policystore.AuditRow, rows *sql.Rows) error {
		var ms int64
		err := rows.Scan(&r.Number, &ms, &r.Actor, &r.Action, &r.Object, &r.Before, &r.After)
		r.At = time.UnixMilli(ms)
		return err
	})
}

// Lead implements policystore.Store.
func (s *Store) Lead(ctx context.Context, task, holder string, term time.Duration) (bool, error) {
	now := s.now()
	r, err := s.exec(ctx, `INSERT INTO leaders (task, holder, until_ms) VALUES ($1, $2, $3)
		ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, until_ms = excluded.until_ms
		WHERE leaders.holder = excluded.holder OR leaders.until_ms <= $4`, task, holder, now.Add(term).UnixMilli(), now.UnixMilli())
	if err != nil {
		return false, unavailable("lead", err)
	}
	n, err := r.RowsAffected()
	return n == 1, unavailable("lead", err)
}

// Secret implements policystore.Store.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	made := make([]byte, 32)
	_, _ = rand.Read(made) // it never fails
	if _, err := s.exec(ctx, "INSERT INTO server_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", name, made); err != nil {
		return nil, unavailable("make secret", err)
	}
	var secret []byte
	err := s.db.QueryRowContext(ctx, "SELECT secret FROM server_secrets WHERE name = $1", name).Scan(&secret)
	return secret, unavailable("read secret", err)
}

// collect scans all rows, and closes them.
func collect[T any](rows *sql.Rows, err error, what string, scan func(*T, *sql.Rows) error) ([]T, error) {
	if err != nil {
		return nil, unavailable(what, err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var one T
		if err := scan(&one, rows); err != nil {
			return nil, unavailable(what, err)
		}
		all = append(all, one)
	}
	return all, unavailable(what, rows.Err())
}

// page bounds the size of a page.
func page(n int) int { return max(1, min(n, policystore.MaxPage)) }

// unavailable names what failed; nil stays nil.
func unavailable(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", policystore.ErrUnavailable, what, err)
}
