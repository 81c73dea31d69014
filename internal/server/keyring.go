package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// credential is a stored key: its secret only as a hash. Secrets are long and
// random, so a plain hash is enough.
type credential struct {
	id      string
	role    role
	agents  limit.Names // whom an agent's key speaks for
	scope   *scope      // nil for everything
	hash    [sha256.Size]byte
	expires time.Time // zero for never
	*usage
}

// usage is when a key was last used, and what of that is stored, in Unix milliseconds; 0 for not here.
type usage struct{ used, written atomic.Int64 }

// keyring is the keys that are good, replaced whole whenever they change.
type keyring struct {
	insecureOpen bool // no key is ever asked for
	mayOpen      bool // none is asked for as long as no key was ever made
	bootstrap    *credential
	// certificateAgents has an agent's id be one of the names of its client certificate.
	certificateAgents bool
	now               func() time.Time // nil for the clock's

	mu      sync.RWMutex
	loaded  bool
	ever    bool // a key was made, be it good or not
	byHash  map[[sha256.Size]byte]credential
	streams map[*held]struct{}

	wrong *wrongKeys // nil notes none
}

func (k *keyring) clock() time.Time {
	if k.now != nil {
		return k.now()
	}
	return time.Now()
}

// replace puts keys in force; ever says whether one was ever made.
func (k *keyring) replace(keys []credential, ever bool) {
	byHash := make(map[[sha256.Size]byte]credential, len(keys))
	k.mu.Lock()
	for _, c := range keys {
		was := k.byHash[c.hash]
		if c.usage = was.usage; c.usage == nil {
			c.usage = new(usage)
		}
		if was.scope != nil && c.scope != nil {
			c.scope = was.scope // streams have it, and it never changes
		}
		byHash[c.hash] = c
	}
	k.byHash, k.loaded, k.ever = byHash, true, ever
	k.mu.Unlock()
	k.sweep()
}

// open reports whether callers are let in without a key.
func (k *keyring) open() bool {
	if k.insecureOpen {
		return true
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.mayOpen && k.bootstrap == nil && k.loaded && !k.ever
}

// keyless reports whether no key can ever be right: the store was read, and none was ever made.
func (k *keyring) keyless() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.loaded && !k.ever && k.bootstrap == nil
}

// errNoKey refuses a key that is none.
var errNoKey = fmt.Errorf("%w: no such key, or it was revoked, or it ended", fault.ErrUnauthenticated)

// authenticate says who bears the secret.
func (k *keyring) authenticate(secret string, from string) (principal, error) {
	hash := sha256.Sum256([]byte(secret))
	// Stored keys are long and random: no number of tries finds one. The bootstrap key is its owner's choice, so who gave
	// many wrong keys lately is not told whether it is another.
	p, err := k.authenticateHash(hash, secret != "", k.wrong.mayGuess(from))
	if errors.Is(err, errNoKey) {
		k.wrong.note(from, secret, hash)
	}
	return p, err
}

func (k *keyring) authenticateHash(hash [sha256.Size]byte, given, guess bool) (principal, error) {
	if k.open() {
		return principal{name: "open", role: roleAdmin, open: true}, nil
	}
	if !given {
		return principal{}, fmt.Errorf("%w: a key is needed: send authorization: Bearer KEY", fault.ErrUnauthenticated)
	}
	if b := k.bootstrap; b != nil && guess && subtle.ConstantTimeCompare(hash[:], b.hash[:]) == 1 {
		return principal{name: b.id, role: b.role}, nil
	}
	k.mu.RLock()
	c, ok := k.byHash[hash] // a hash is looked up, so timing tells nothing of a secret
	loaded := k.loaded
	k.mu.RUnlock()
	switch {
	case !loaded:
		return principal{}, fmt.Errorf("%w: the keys could not be read yet", fault.ErrUnavailable)
	case !ok:
		return principal{}, errNoKey
	case !c.expires.IsZero() && !k.clock().Before(c.expires):
		return principal{}, fmt.Errorf("%w: key %s ended at %s", fault.ErrUnauthenticated, c.id, c.expires.UTC().Format(time.RFC3339))
	case c.role == roleAgent && c.agents.None():
		return principal{}, fmt.Errorf("%w: key %s is an agent's and names no agent: make another", fault.ErrUnauthenticated, c.id)
	}
	if now := k.clock().UnixMilli(); now-c.used.Load() >= usedEvery.Milliseconds() {
		c.used.Store(now)
	}
	return principal{name: c.id, role: c.role, agents: c.agents, scope: c.scope}, nil
}

// tenantsChanged tells the scopes of tenants that changed; overrun is that more changed than these.
func (k *keyring) tenantsChanged(tenants []change, overrun bool) {
	if len(tenants) == 0 && !overrun {
		return
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, c := range k.byHash {
		if !c.scope.narrowsTenants() {
			continue
		}
		if overrun {
			c.scope.stale.Store(true)
		}
		for i := range tenants {
			c.scope.changed(tenants[i].tenants)
			c.scope.changedFaulty(tenants[i].faulty)
		}
	}
}
