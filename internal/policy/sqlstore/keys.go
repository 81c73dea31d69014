package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

const keyColumns = "id, hash, role, agent, note, created_ms, revoked_ms"

func scanKey(k *policy.Key, scan func(...any) error) error {
	var hash string
	var created, revoked int64
	if err := scan(&k.ID, &hash, &k.Role, &k.Agent, &k.Note, &created, &revoked); err != nil {
		return err
	}
	b, err := hex.DecodeString(hash)
	if err != nil || len(b) != sha256.Size {
		return fmt.Errorf("key %s: its hash is not one", k.ID)
	}
	k.Hash = [sha256.Size]byte(b)
	k.Created = time.UnixMilli(created)
	if revoked != 0 {
		k.Revoked = time.UnixMilli(revoked)
	}
	return nil
}

// keyJSON is what the audit log keeps of a key: neither its secret nor the hash.
func keyJSON(k policy.Key) any {
	return map[string]any{"role": k.Role, "agent": k.Agent, "note": k.Note, "revoked": !k.Revoked.IsZero()}
}

// CreateKey implements policy.Store.
func (s *Store) CreateKey(ctx context.Context, actor string, k policy.Key) (policy.Key, error) {
	if err := checkKey(k); err != nil {
		return policy.Key{}, err
	}
	k.Created, k.Revoked = time.UnixMilli(s.now().UnixMilli()), time.Time{}
	err := s.change(ctx, func(t *tx) error {
		hash := hex.EncodeToString(k.Hash[:])
		var taken, all int64
		err := t.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(CASE WHEN id = $1 OR hash = $2 THEN 1 ELSE 0 END), 0) FROM access_keys", k.ID, hash).Scan(&all, &taken)
		if err != nil {
			return unavailable("read keys", err)
		}
		if taken > 0 {
			return fmt.Errorf("%w: key %s", policy.ErrExists, k.ID)
		}
		if all >= policy.MaxKeys {
			return fmt.Errorf("%w: there are %d keys; at most %d are kept", policy.ErrInvalid, all, policy.MaxKeys)
		}
		if _, err := t.ExecContext(ctx, "INSERT INTO access_keys ("+keyColumns+") VALUES ($1, $2, $3, $4, $5, $6, 0)",
			k.ID, hash, k.Role, k.Agent, k.Note, k.Created.UnixMilli()); err != nil {
			return unavailable("write key", err)
		}
		t.heads.Keys++
		return t.audit(actor, "key.create", k.ID, nil, keyJSON(k))
	})
	if err != nil {
		return policy.Key{}, err
	}
	return k, nil
}

func checkKey(k policy.Key) error {
	roles := []string{policy.RoleViewer, policy.RoleOperator, policy.RoleAdmin, policy.RoleAgent, policy.RoleBackfill}
	switch {
	case !limit.ValidName(k.ID):
		return fmt.Errorf("%w: %s is not a key's id", policy.ErrInvalid, limit.Quote(k.ID))
	case !slices.Contains(roles, k.Role):
		return fmt.Errorf("%w: role is %s; it must be viewer, operator, admin, agent or backfill", policy.ErrInvalid, limit.Quote(k.Role))
	case k.Agent != "" && (k.Role != policy.RoleAgent || !limit.ValidAgent(k.Agent)):
		return fmt.Errorf("%w: only a key of the role agent is bound to an agent's id", policy.ErrInvalid)
	case len(k.Note) > policy.MaxNote || !limit.ValidValue(k.Note):
		return fmt.Errorf("%w: note must be at most %d bytes without control characters", policy.ErrInvalid, policy.MaxNote)
	case k.Hash == [sha256.Size]byte{}:
		return fmt.Errorf("%w: key %s has no hash", policy.ErrInvalid, k.ID)
	}
	return nil
}

// RevokeKey implements policy.Store.
func (s *Store) RevokeKey(ctx context.Context, actor, id string) (policy.Key, error) {
	var k policy.Key
	err := s.change(ctx, func(t *tx) error {
		err := scanKey(&k, t.QueryRowContext(ctx, "SELECT "+keyColumns+" FROM access_keys WHERE id = $1", id).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: key %s", policy.ErrNotFound, limit.Quote(id))
		}
		if err != nil {
			return unavailable("read key", err)
		}
		if !k.Revoked.IsZero() {
			return nil
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
		return policy.Key{}, err
	}
	return k, nil
}

// Keys implements policy.Store.
func (s *Store) Keys(ctx context.Context) ([]policy.Key, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+keyColumns+" FROM access_keys ORDER BY id")
	return collect(rows, err, "read keys", func(k *policy.Key, rows *sql.Rows) error { return scanKey(k, rows.Scan) })
}

func sortedSet(s []string) []string {
	s = append([]string{}, s...)
	slices.Sort(s)
	return slices.Compact(s)
}

func equal(a, b []string) bool { return slices.Equal(a, b) }
