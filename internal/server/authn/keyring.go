package authn

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// credential is a stored key: its secret only as a hash. Secrets are long and
// random, so a plain hash is enough.
type credential struct {
	id      string
	role    role
	agents  limit.Names // whom an agent's key speaks for
	scope   *Scope      // nil for everything
	hash    [sha256.Size]byte
	expires time.Time // zero for never
	*usage
}

// usage is when a key was last used and what of that is stored, in Unix milliseconds; 0 for not on this server.
type usage struct{ used, written atomic.Int64 }

// KeysConfig is whom a keyring lets in besides those with a stored key.
type KeysConfig struct {
	InsecureOpen bool   // no key is ever asked for
	MayOpen      bool   // none is asked for as long as no key was ever made
	Bootstrap    string // an admin's key besides those stored; empty for none
	// CertificateAgents requires that an agent's id is one of the names of its client certificate.
	CertificateAgents bool
	Now               func() time.Time // nil for the clock's
	Log               *slog.Logger
}

// Keyring is the keys that are good, replaced whole whenever they change.
type Keyring struct {
	insecureOpen      bool
	mayOpen           bool
	bootstrap         *credential
	certificateAgents bool
	now               func() time.Time
	log               *slog.Logger
	tree              Tree
	flushed           time.Time // when uses were last written; guarded by whoever calls FlushUsed

	mu      sync.RWMutex
	loaded  bool
	ever    bool // a key was made, be it good or not
	byHash  map[[sha256.Size]byte]credential
	streams map[*held]struct{}

	wrong *wrongKeys // nil notes none
}

// NewKeyring returns one without stored keys: Load brings them.
func NewKeyring(c KeysConfig, r prometheus.Registerer) (*Keyring, error) {
	wrong := prometheus.NewCounter(prometheus.CounterOpts{Name: "quota_server_wrong_keys_total", Help: "Calls with a wrong key: never made, revoked or ended."})
	k := &Keyring{
		insecureOpen: c.InsecureOpen, mayOpen: c.MayOpen, certificateAgents: c.CertificateAgents, now: c.Now, log: c.Log,
		wrong: newWrongKeys(c.Log, wrong), flushed: time.Now(),
	}
	if c.Bootstrap != "" {
		k.bootstrap = &credential{id: "bootstrap", role: roleAdmin, hash: sha256.Sum256([]byte(c.Bootstrap))}
	}
	return k, r.Register(wrong)
}

// Follow gives scopes the tree that says which tenants are theirs. It is called before the first Load.
func (k *Keyring) Follow(tree Tree) { k.tree = tree }

// Load puts stored keys in force, except those that cannot be made out; ever says whether one was ever made.
func (k *Keyring) Load(keys []policystore.Key, ever bool) {
	var credentials []credential
	for i := range keys {
		if c, ok := k.credential(&keys[i]); ok {
			credentials = append(credentials, c)
		}
	}
	k.replace(credentials, ever)
}

func (k *Keyring) clock() time.Time {
	if k.now != nil {
		return k.now()
	}
	return time.Now()
}

// replace puts keys in force; ever says whether one was ever made.
func (k *Keyring) replace(keys []credential, ever bool) {
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
	k.Sweep()
}

// Open reports whether callers are let in without a key.
func (k *Keyring) Open() bool {
	if k.insecureOpen {
		return true
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.mayOpen && k.bootstrap == nil && k.loaded && !k.ever
}

// InsecurelyOpen reports whether no key is ever asked for.
func (k *Keyring) InsecurelyOpen() bool { return k.insecureOpen }

// Keyless reports whether no key can ever be right: the store was read, and none was ever made.
func (k *Keyring) Keyless() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.loaded && !k.ever && k.bootstrap == nil
}

// errNoKey refuses a wrong key.
var errNoKey = fmt.Errorf("%w: no such key, or it was revoked, or it ended", fault.ErrUnauthenticated)

// authenticate says who bears the secret.
func (k *Keyring) authenticate(secret string, from string) (Principal, error) {
	hash := sha256.Sum256([]byte(secret))
	// Stored keys are long and random: no number of tries finds one. The bootstrap key is its owner's choice. So an
	// address that gave many wrong keys lately is not told whether it is right.
	p, err := k.authenticateHash(hash, secret != "", k.wrong.mayGuess(from))
	if errors.Is(err, errNoKey) {
		k.wrong.note(from, secret, hash)
	}
	return p, err
}

func (k *Keyring) authenticateHash(hash [sha256.Size]byte, given, guess bool) (Principal, error) {
	if k.Open() {
		return Principal{Name: "open", role: roleAdmin, Open: true}, nil
	}
	if !given {
		return Principal{}, fmt.Errorf("%w: a key is needed: send authorization: Bearer KEY", fault.ErrUnauthenticated)
	}
	if b := k.bootstrap; b != nil && guess && subtle.ConstantTimeCompare(hash[:], b.hash[:]) == 1 {
		return Principal{Name: b.id, role: b.role}, nil
	}
	k.mu.RLock()
	c, ok := k.byHash[hash] // a hash is looked up, so timing tells nothing of a secret
	loaded := k.loaded
	k.mu.RUnlock()
	switch {
	case !loaded:
		return Principal{}, fmt.Errorf("%w: the keys could not be read yet", fault.ErrUnavailable)
	case !ok:
		return Principal{}, errNoKey
	case !c.expires.IsZero() && !k.clock().Before(c.expires):
		return Principal{}, fmt.Errorf("%w: key %s ended at %s", fault.ErrUnauthenticated, c.id, c.expires.UTC().Format(time.RFC3339))
	case c.role == roleAgent && c.agents.None():
		return Principal{}, fmt.Errorf("%w: key %s is an agent's and names no agent: make another", fault.ErrUnauthenticated, c.id)
	}
	if now := k.clock().UnixMilli(); now-c.used.Load() >= usedEvery.Milliseconds() {
		c.used.Store(now)
	}
	return Principal{Name: c.id, role: c.role, agents: c.agents, Scope: c.scope}, nil
}

// Moved is told of changed tenants, and their parents now. all says that any tenant may have changed.
func (k *Keyring) Moved(parents map[string]string, all bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, c := range k.byHash {
		if !c.scope.NarrowsTenants() {
			continue
		}
		if all {
			c.scope.stale.Store(true)
		}
		for id, parent := range parents {
			c.scope.moved(id, parent)
		}
	}
}

// credential makes a key out; false for one that must open nothing.
func (k *Keyring) credential(of *policystore.Key) (credential, bool) {
	r, ok := parseRole(of.Role)
	if !ok {
		k.log.Warn("a key has a role that this server does not know; it opens nothing", "key", of.ID, "role", of.Role)
	}
	c := credential{id: of.ID, role: r, hash: of.Hash, expires: of.Expires}
	var err error
	if of.Agent != "" {
		c.agents, err = limit.ParseNames([]string{of.Agent}, limit.ValidAgent)
	} else if r == roleAgent {
		k.log.Warn("an agent's key names no agent; it opens nothing: make another, and revoke it", "key", of.ID)
	}
	if err == nil {
		c.scope, err = NewScope(of, k.tree)
	}
	if err != nil {
		k.log.Error("a key's scope cannot be made out; it opens nothing", "key", of.ID, "error", err)
	}
	return c, err == nil
}
