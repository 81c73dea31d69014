package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const keyColumns = "id, hash, role, agent, note, tenants, subtree, limits, created_ms, revoked_ms, expires_ms, used_ms, successor"

func scanKey(k *policystore.Key, scan func(...any) error) error {
	var hash, tenants, limits string
	var subtree, created, revoked, expires, used int64
	if err := scan(&k.ID, &hash, &k.Role, &k.Agent, &k.Note, &tenants, &subtree, &limits, &created, &revoked, &expires, &used, &k.Successor); err != nil {
		return err
	}
	b, err := hex.DecodeString(hash)
	if err != nil || len(b) != sha256.Size {
		return fmt.Errorf("key %s: its hash is not one", k.ID)
	}
	// A key whose scope cannot be read must not count as one without a scope.
	if err := errors.Join(json.Unmarshal([]byte(tenants), &k.Tenants), json.Unmarshal([]byte(limits), &k.Limits)); err != nil {
		return fmt.Errorf("key %s: its scope is not one: %w", k.ID, err)
	}
	k.Hash, k.Subtree = [sha256.Size]byte(b), subtree != 0
	k.Created, k.Revoked, k.Expires, k.Used = time.UnixMilli(created), atMillis(revoked), atMillis(expires), atMillis(used)
	return nil
}

// atMillis is a time in Unix milliseconds; zero for 0.
func atMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// millisAt is the inverse of atMillis.
func millisAt(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// keyJSON is what the audit log keeps of a key: neither its secret nor the hash.
func keyJSON(k policystore.Key) any {
	m := map[string]any{"role": k.Role, "agent": k.Agent, "note": k.Note, "revoked": !k.Revoked.IsZero()}
	if len(k.Tenants) > 0 {
		m["tenants"], m["subtree"] = k.Tenants, k.Subtree
	}
	if len(k.Limits) > 0 {
		m["limits"] = k.Limits
	}
	if !k.Expires.IsZero() {
		m["expires"] = k.Expires.UTC().Format(time.RFC3339)
	}
	if k.Successor != "" {
		m["successor"] = k.Successor
	}
	return m
}

// CreateKey implements policystore.Store.
func (s *Store) CreateKey(ctx context.Context, actor string, k policystore.Key) (policystore.Key, error) {
	if err := k.Check(s.now()); err != nil {
		return policystore.Key{}, err
	}
	err := s.change(ctx, func(t *tx) error {
		return t.addKey(ctx, actor, "key.create", &k)
	})
	if err != nil {
		return policystore.Key{}, err
	}
	return k, nil
}

// addKey writes a key that was checked.
func (t *tx) addKey(ctx context.Context, actor, action string, k *policystore.Key) error {
	now := t.s.now().UnixMilli()
	k.Created, k.Revoked, k.Used, k.Successor = time.UnixMilli(now), time.Time{}, time.Time{}, ""
	k.Tenants, k.Limits = sortedSet(k.Tenants), sortedSet(k.Limits)
	hash := hex.EncodeToString(k.Hash[:])
	var taken, good int64
	err := t.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM access_keys WHERE id = $1 OR hash = $2),
		(SELECT count(*) FROM access_keys WHERE revoked_ms = 0 AND (expires_ms = 0 OR expires_ms > $3))`, k.ID, hash, now).Scan(&taken, &good)
	if err != nil {
		return unavailable("read keys", err)
	}
	if taken > 0 {
		return fmt.Errorf("%w: key %s", policystore.ErrExists, k.ID)
	}
	if good >= policystore.MaxKeys {
		return fmt.Errorf("%w: %d keys are good, which is as many as may be at a time: revoke one that is not used", policystore.ErrInvalid, good)
	}
	tenants, err := json.Marshal(k.Tenants)
	if err != nil {
		panic(err) // strings
	}
	limits, err := json.Marshal(k.Limits)
	if err != nil {
		panic(err) // strings
	}
	subtree := 0
	if k.Subtree {
		subtree = 1
	}
	if _, err := t.ExecContext(ctx, "INSERT INTO access_keys ("+keyColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, 0, '')",
		k.ID, hash, k.Role, k.Agent, k.Note, string(tenants), subtree, string(limits), now, millisAt(k.Expires)); err != nil {
		return unavailable("write key", err)
	}
	t.heads.Keys++
	return t.audit(actor, action, k.ID, nil, keyJSON(*k))
}

// key reads a key; ErrNotFound without it.
func (t *tx) key(ctx context.Context, id string) (k policystore.Key, err error) {
	err = scanKey(&k, t.QueryRowContext(ctx, "SELECT "+keyColumns+" FROM access_keys WHERE id = $1", id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return k, fmt.Errorf("%w: key %s", policystore.ErrNotFound, limit.Quote(id))
	}
	return k, unavailable("read key", err)
}

// RotateKey implements policystore.Store.
func (s *Store) RotateKey(ctx context.Context, actor, old string, next policystore.Key, overlap time.Duration) (policystore.Key, error) {
	if overlap < 0 || overlap > policystore.MaxOverlap {
		return policystore.Key{}, fmt.Errorf("%w: the overlap is %s; it must be 0 to %s", policystore.ErrInvalid, overlap, policystore.MaxOverlap)
	}
	err := s.change(ctx, func(t *tx) error {
		k, err := t.key(ctx, old)
		if err != nil {
			return err
		}
		now := s.now()
		if !k.Good(now) {
			return fmt.Errorf("%w: key %s is not good any more: make another", policystore.ErrInvalid, old)
		}
		if k.Successor != "" {
			return fmt.Errorf("%w: key %s was rotated to %s already: rotate that one, or revoke it", policystore.ErrInvalid, old, k.Successor)
		}
		next.Role, next.Agent, next.Note, next.Scope, next.Expires = k.Role, k.Agent, k.Note, k.Scope, k.Expires
		if err := next.Check(now); err != nil {
			return err
		}
		before := keyJSON(k)
		ends := time.UnixMilli(now.Add(overlap).UnixMilli())
		if k.Expires.IsZero() || ends.Before(k.Expires) {
			k.Expires = ends
		}
		k.Successor = next.ID
		// The old key is written first: at the bound there is room for its successor if they do not overlap.
		if _, err := t.ExecContext(ctx, "UPDATE access_keys SET expires_ms = $1, successor = $2 WHERE id = $3", millisAt(k.Expires), k.Successor, old); err != nil {
			return unavailable("write key", err)
		}
		if err := t.addKey(ctx, actor, "key.create", &next); err != nil {
			return err
		}
		return t.audit(actor, "key.rotate", old, before, keyJSON(k))
	})
	if err != nil {
		return policystore.Key{}, err
	}
	return next, nil
}

// RevokeKey implements policystore.Store.
func (s *Store) RevokeKey(ctx context.Context, actor, id string) (policystore.Key, error) {
	var k policystore.Key
	err := s.change(ctx, func(t *tx) (err error) {
		if k, err = t.key(ctx, id); err != nil || !k.Revoked.IsZero() {
			return err
		}
		before := keyJSON(k)
		k.Revoked = time.UnixMilli(s.now().UnixMilli())
		if _, err := t.ExecContext(ctx, "UPDATE access_keys SET revoked_ms = $1 WHERE id = $2", k.Revoked.UnixMilli(), id); err != nil {
			return unavailable("write key", err)
		}
		t.heads.Keys++
		return t.audit(actor, "key.revoke", id, before, keyJSON(k))
	})
	if err != nil {
		return policystore.Key{}, err
	}
	return k, nil
}

// Keys implements policystore.Store.
func (s *Store) Keys(ctx context.Context, after string, n int, good bool) ([]policystore.Key, error) {
	which, args := "", []any{after, n}
	if good {
		which = " AND revoked_ms = 0 AND (expires_ms = 0 OR expires_ms > $3)"
		args = append(args, s.now().UnixMilli())
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+keyColumns+" FROM access_keys WHERE id > $1"+which+" ORDER BY id LIMIT $2", args...)
	return collect(rows, err, "read keys", func(k *policystore.Key, rows *sql.Rows) error { return scanKey(k, rows.Scan) })
}

// UseKeys implements policystore.Store.
func (s *Store) UseKeys(ctx context.Context, used map[string]time.Time) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return unavailable("begin", err)
	}
	defer tx.Rollback()                                 // does nothing once committed
	for _, id := range slices.Sorted(maps.Keys(used)) { // in one order, for servers that write the same
		if _, err := tx.ExecContext(ctx, "UPDATE access_keys SET used_ms = $1 WHERE id = $2 AND used_ms < $1", used[id].UnixMilli(), id); err != nil {
			return unavailable("write when keys were used", err)
		}
	}
	return unavailable("commit", tx.Commit())
}

func sortedSet(s []string) []string {
	s = append([]string{}, s...)
	slices.Sort(s)
	return slices.Compact(s)
}

func equal(a, b []string) bool { return slices.Equal(a, b) }
