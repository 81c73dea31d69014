package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/fault"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// role is what a key may do. The three for people include each other in their
// order; agent and backfill stand apart.
type role uint8

const (
	roleNone role = iota
	roleViewer
	roleOperator
	roleAdmin
	roleAgent
	roleBackfill
)

var roleNames = [...]string{roleNone: "", roleViewer: "viewer", roleOperator: "operator", roleAdmin: "admin", roleAgent: "agent", roleBackfill: "backfill"}

func (r role) String() string { return roleNames[r] }

func parseRole(s string) (role, bool) {
	for r := roleViewer; r <= roleBackfill; r++ {
		if roleNames[r] == s {
			return r, true
		}
	}
	return roleNone, false
}

// allows reports whether a key of role r may do what needs role need.
func (r role) allows(need role) bool {
	if need >= roleAgent || r >= roleAgent {
		return r == need
	}
	return r >= need && need != roleNone
}

// needs is the role that each method asks for. A method that is not here is
// refused to everybody, so that a new one cannot be served open by mistake.
var needs = map[string]role{
	quotav1.LeaseService_Renew_FullMethodName:     roleAgent,
	quotav1.LeaseService_Watch_FullMethodName:     roleAgent,
	quotav1.LeaseService_Settle_FullMethodName:    roleAgent,
	quotav1.LeaseService_Frontiers_FullMethodName: roleAgent,

	quotav1.UsageService_GetUsage_FullMethodName:           roleViewer,
	quotav1.UsageService_ListBreakdown_FullMethodName:      roleViewer,
	quotav1.UsageService_ExportBreakdown_FullMethodName:    roleViewer,
	quotav1.AdminService_GetPolicy_FullMethodName:          roleViewer,
	quotav1.AdminService_ListPolicyVersions_FullMethodName: roleViewer,
	quotav1.AdminService_GetShadow_FullMethodName:          roleViewer,
	quotav1.AdminService_ListPlans_FullMethodName:          roleViewer,
	quotav1.AdminService_GetTenant_FullMethodName:          roleViewer,
	quotav1.AdminService_ListTenants_FullMethodName:        roleViewer,
	quotav1.AdminService_ListPlanChanges_FullMethodName:    roleViewer,
	quotav1.AdminService_ListPayers_FullMethodName:         roleViewer,
	quotav1.AdminService_CancelPlanChange_FullMethodName:   roleOperator,
	quotav1.AdminService_ListAgents_FullMethodName:         roleViewer,
	quotav1.AdminService_GetSwitches_FullMethodName:        roleViewer,
	quotav1.AdminService_GetVersion_FullMethodName:         roleViewer,

	quotav1.StatementService_PreviewStatement_FullMethodName: roleViewer,
	quotav1.StatementService_GetStatement_FullMethodName:     roleViewer,
	quotav1.StatementService_ListStatements_FullMethodName:   roleViewer,
	quotav1.StatementService_CloseStatement_FullMethodName:   roleAdmin,
	quotav1.StatementService_GiveCredit_FullMethodName:       roleAdmin,
	quotav1.StatementService_VoidCredit_FullMethodName:       roleAdmin,
	quotav1.StatementService_ListCredits_FullMethodName:      roleViewer,
	quotav1.StatementService_CloseDue_FullMethodName:         roleAdmin,
	quotav1.StatementService_Simulate_FullMethodName:         roleViewer,

	quotav1.AlertService_ListAlerts_FullMethodName:  roleViewer,
	quotav1.AlertService_WatchAlerts_FullMethodName: roleViewer,
	quotav1.AlertService_GetAlert_FullMethodName:    roleViewer,
	quotav1.AlertService_RetryAlert_FullMethodName:  roleOperator,
	quotav1.AlertService_TestWebhook_FullMethodName: roleOperator,

	quotav1.LedgerService_Verify_FullMethodName:  roleOperator,
	quotav1.LedgerService_Rebuild_FullMethodName: roleAdmin,

	quotav1.LedgerService_ListQuarantine_FullMethodName:     roleViewer,
	quotav1.LedgerService_GetQuarantined_FullMethodName:     roleViewer,
	quotav1.LedgerService_TraceReport_FullMethodName:        roleViewer,
	quotav1.LedgerService_TraceEntry_FullMethodName:         roleViewer,
	quotav1.LedgerService_ListCorrections_FullMethodName:    roleViewer,
	quotav1.LedgerService_Reconcile_FullMethodName:          roleViewer,
	quotav1.LedgerService_GetCorrection_FullMethodName:      roleViewer,
	quotav1.LedgerService_RetryQuarantined_FullMethodName:   roleOperator,
	quotav1.LedgerService_DiscardQuarantined_FullMethodName: roleOperator,
	quotav1.LedgerService_DeclareLost_FullMethodName:        roleOperator,
	quotav1.LedgerService_Adjust_FullMethodName:             roleAdmin,
	quotav1.LedgerService_RevertCorrection_FullMethodName:   roleAdmin,
	quotav1.LedgerService_Backfill_FullMethodName:           roleBackfill,

	quotav1.AdminService_CreateTenant_FullMethodName:  roleOperator,
	quotav1.AdminService_SetTenantPlan_FullMethodName: roleOperator,
	quotav1.AdminService_SuspendTenant_FullMethodName: roleOperator,
	quotav1.AdminService_ResumeTenant_FullMethodName:  roleOperator,
	quotav1.AdminService_SetSwitches_FullMethodName:   roleOperator,

	quotav1.AdminService_ApplyPolicy_FullMethodName:    roleAdmin,
	quotav1.AdminService_RollbackPolicy_FullMethodName: roleAdmin,
	quotav1.AdminService_ClearShadow_FullMethodName:    roleAdmin,
	quotav1.AdminService_PromoteShadow_FullMethodName:  roleAdmin,
	quotav1.AdminService_CreateKey_FullMethodName:      roleAdmin,
	quotav1.AdminService_RevokeKey_FullMethodName:      roleAdmin,
	quotav1.AdminService_ListKeys_FullMethodName:       roleAdmin,
	quotav1.AdminService_ListAudit_FullMethodName:      roleAdmin,
}

// healthPrefix begins the methods that need no key: grpc.health.v1.
const healthPrefix = "/grpc.health.v1.Health/"

// principal is who calls.
type principal struct {
	name  string // for the audit log
	role  role
	agent string // the agent id that an agent's key is bound to; empty for any
	open  bool   // nobody was asked for a key
}

// speaksFor reports whether the caller may act as that agent.
func (p principal) speaksFor(agent string) bool {
	return p.open || p.agent == "" || p.agent == agent
}

type principalKey struct{}

func principalOf(ctx context.Context) principal {
	p, _ := ctx.Value(principalKey{}).(principal)
	return p
}

// credential is a stored key: its secret only as a hash. Secrets are long and
// random, so a plain hash is enough.
type credential struct {
	id      string
	role    role
	agent   string
	hash    [sha256.Size]byte
	revoked bool
}

// keyring is the keys in force, replaced whole whenever they change.
type keyring struct {
	insecureOpen bool // no key is ever asked for
	mayOpen      bool // none is asked for as long as no key was ever made
	bootstrap    *credential

	mu     sync.RWMutex
	loaded bool
	byHash map[[sha256.Size]byte]credential
}

// replace puts keys in force.
func (k *keyring) replace(keys []credential) {
	byHash := make(map[[sha256.Size]byte]credential, len(keys))
	for _, c := range keys {
		byHash[c.hash] = c
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byHash, k.loaded = byHash, true
}

// open reports whether callers are let in without a key.
func (k *keyring) open() bool {
	if k.insecureOpen {
		return true
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.mayOpen && k.bootstrap == nil && k.loaded && len(k.byHash) == 0
}

// keyless reports whether no key can ever be right: the store was read and holds none.
func (k *keyring) keyless() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.loaded && len(k.byHash) == 0 && k.bootstrap == nil
}

// authenticate says who bears the secret.
func (k *keyring) authenticate(secret string) (principal, error) {
	if k.open() {
		return principal{name: "open", role: roleAdmin, open: true}, nil
	}
	if secret == "" {
		return principal{}, fmt.Errorf("%w: a key is needed: send authorization: Bearer KEY", fault.ErrUnauthenticated)
	}
	hash := sha256.Sum256([]byte(secret))
	if b := k.bootstrap; b != nil && subtle.ConstantTimeCompare(hash[:], b.hash[:]) == 1 {
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
		return principal{}, fmt.Errorf("%w: no such key", fault.ErrUnauthenticated)
	case c.revoked:
		return principal{}, fmt.Errorf("%w: key %s is revoked", fault.ErrUnauthenticated, c.id)
	}
	return principal{name: c.id, role: c.role, agent: c.agent}, nil
}

// authorize lets a call of method pass, or says why not.
func (k *keyring) authorize(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, healthPrefix) {
		return ctx, nil
	}
	need, ok := needs[method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "no such method: %s", method)
	}
	secret, err := bearer(ctx)
	if err != nil {
		return nil, err
	}
	p, err := k.authenticate(secret)
	if err != nil {
		return nil, err
	}
	if !p.open && !p.role.allows(need) {
		return nil, fmt.Errorf("%w: key %s has the role %s; this needs %s", fault.ErrDenied, p.name, p.role, need)
	}
	return context.WithValue(ctx, principalKey{}, p), nil
}

// bearer returns the secret of the authorization header, empty without one.
func bearer(ctx context.Context) (string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "bearer") || secret == "" {
		return "", fmt.Errorf("%w: the authorization header must be one of the form: Bearer KEY", fault.ErrUnauthenticated)
	}
	return secret, nil
}
