package policystore

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Key is a bearer key. Only the hash of its secret is kept.
type Key struct {
	ID    string // short and public
	Role  string
	Agent string // whom an agent's key speaks for: an agent's id, or how some begin, followed by *
	Note  string
	Scope
	Hash      [sha256.Size]byte // of the secret
	Created   time.Time         // set by the store
	Revoked   time.Time         // zero while the key was not
	Expires   time.Time         // when it ends by itself; zero for never
	Used      time.Time         // when it was last used, to the minute; zero for never
	Successor string            // the key that it was rotated to; empty for none
}

// Scope narrows what a key is for. The zero Scope narrows nothing.
type Scope struct {
	Tenants []string // ids, or how some begin, followed by *; none for all
	Subtree bool     // and the tenants below these
	Limits  []string // names, or how some begin, followed by *; none for all
}

// Good reports whether the key opens anything at a time.
func (k *Key) Good(at time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || at.Before(k.Expires))
}

// Check returns why a new key is invalid, or nil. Errors wrap fault.ErrInvalid.
func (k *Key) Check(now time.Time) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{fault.ErrInvalid}, args...)...)
	}
	roles := []string{RoleViewer, RoleOperator, RoleAdmin, RoleAgent, RoleBackfill}
	switch {
	case !limit.ValidName(k.ID):
		return bad("%s is not a key's id", limit.Quote(k.ID))
	case !slices.Contains(roles, k.Role):
		return bad("role is %s; it must be viewer, operator, admin, agent or backfill", limit.Quote(k.Role))
	case k.Role == RoleAgent && k.Agent == "":
		return bad("a key of the role agent names its agent: an id, or how the ids of some begin, followed by *")
	case k.Role != RoleAgent && k.Agent != "":
		return bad("agent is set; only a key of the role agent names one")
	case len(k.Note) > MaxNote || !limit.ValidValue(k.Note):
		return bad("note must be at most %d bytes without control characters", MaxNote)
	case k.Hash == [sha256.Size]byte{}:
		return bad("key %s has no hash", k.ID)
	case k.Role == RoleAdmin && len(k.Tenants) > 0:
		return bad("tenants are set; a key of the role admin is for all")
	case k.Subtree && len(k.Tenants) == 0:
		return bad("subtree is set, and no tenants are")
	case k.Role != RoleAgent && len(k.Limits) > 0:
		return bad("limits are set; only a key of the role agent is for some")
	case !k.Expires.IsZero() && !k.Expires.After(now):
		return bad("the key would have ended at %s already", k.Expires.UTC().Format(time.RFC3339))
	}
	for _, names := range []struct {
		what  string
		given []string
		valid func(string) bool
	}{{"agent", []string{k.Agent}, limit.ValidAgent}, {"tenants", k.Tenants, limit.ValidTenant}, {"limits", k.Limits, limit.ValidName}} {
		if names.what == "agent" && k.Agent == "" {
			continue
		}
		if _, err := limit.ParseNames(names.given, names.valid); err != nil {
			return bad("%s: %w", names.what, err)
		}
	}
	return nil
}
