package policystore

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Bounds of a store's contents and answers.
const (
	MaxPage  = 1000   // elements of a page
	MaxKeys  = 10_000 // keys that are good at a time: servers hold them in memory
	MaxNote  = 256    // bytes of a key's note
	MaxActor = 256    // bytes of a name in the audit log

	MaxOverlap = 90 * 24 * time.Hour // for which a key is good beside its successor
)

// Roles of keys.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
	RoleAgent    = "agent"
	RoleBackfill = "backfill" // brings usage into the ledger that no agent reported
)

// Heads are the numbers of the newest changes. Equal numbers mean that nothing has changed. They rise in the order of
// commits, and leave out no change.
type Heads struct {
	Version  int64 // policy version in force; 0 before the first
	Tenants  int64 // number of the last change of a tenant
	Switches int64 // revision of the switches
	Keys     int64
	Shadow   int64 // policy version that is tried beside the one in force; 0 for none
	// Due is when the next waiting plan change is to be made, in Unix milliseconds; 0 for none.
	Due int64
}

// Version is one immutable version of the policy.
type Version struct {
	Number  int64
	Text    string // empty in lists
	File    string
	Author  string
	Created time.Time
	Shadow  bool // stored to be tried beside another, and itself never in force
}

// Applied says what applying a document changed, or would change.
type Applied struct {
	Version int64    // now in force
	Changed bool     // false when the document says what is in force already
	Changes []string // the difference, a sentence each, at most MaxChanges
	// Warnings name settings made by hand that the document takes back, by line of the document; at most MaxFaults.
	Warnings policy.Faults
}

// AuditRow is one change, written in the transaction that made it.
type AuditRow struct {
	Number int64
	At     time.Time
	Actor  string
	Action string // such as policy.apply, tenant.create, key.revoke
	Object string // the version, tenant or key that was changed
	Before string // JSON; empty when there was none
	After  string // JSON; never a secret
}

// AuditQuery selects changes; an empty field selects all.
type AuditQuery struct {
	Before int64 // numbers below it; 0 for all
	N      int   // at most
	Actor  string
	Action string // how it begins
	Object string
}

// Store keeps policy versions, tenants, keys, switches and the audit log. All servers of an installation share it, and
// poll Heads to learn of changes. Its methods are safe for concurrent use; changes are serialized. Any error that is
// not said to be another wraps ErrUnavailable. actor is who makes the change, for the log.
type Store interface {
	// Heads is one cheap read.
	Heads(ctx context.Context) (Heads, error)

	// Apply makes doc the next version and upserts the tenants it names, unless nothing would change. base is the
	// version that doc was made from. ErrConflict if another is in force; 0 applies over any. ErrInvalid names the
	// stored tenants that do not fit doc: their plan is gone from it, or their overrides contradict it. A dry run
	// checks the same and changes nothing.
	Apply(ctx context.Context, actor string, doc *policy.Document, base int64, dryRun bool) (Applied, error)
	// SetShadow stores doc as the shadow version, in the place of the shadow before it. Applied.Version is its number,
	// and Changes its difference from the version in force. Nothing is stored if doc equals the version in force or the
	// shadow. Tenants that doc names stay as they are. ErrInvalid as Apply's, or before the first policy.
	SetShadow(ctx context.Context, actor string, doc *policy.Document, dryRun bool) (Applied, error)
	// ClearShadow ends the trial, and returns the shadow's version; 0 when there was none.
	ClearShadow(ctx context.Context, actor string) (int64, error)
	// PromoteShadow applies the shadow's document as the next version and ends the trial.
	// ErrNotFound when there is no shadow; ErrConflict when it is not that version (0: any).
	PromoteShadow(ctx context.Context, actor string, version int64) (Applied, error)
	// Shadows returns all versions that were ever stored as shadows.
	Shadows(ctx context.Context) ([]int64, error)
	// Rollback applies the document of an earlier version as the next one.
	Rollback(ctx context.Context, actor string, version int64) (Applied, error)
	// Version returns a version, 0 the one in force; ErrNotFound without it.
	Version(ctx context.Context, number int64) (Version, error)
	// Versions returns versions below before (0: all), newest first, without their texts.
	Versions(ctx context.Context, before int64, n int) ([]Version, error)

	// Parent reports whether the tenant is any other's parent.
	Parent(ctx context.Context, id string) (bool, error)
	// Tenants returns the tenants of the ids in their order, with overrides compiled against the policy in force.
	// Exists is false for an unknown id. If the error is FaultyTenants, the answer is complete except for the overrides
	// of these; so are the answers of TenantPage and TenantChanges.
	Tenants(ctx context.Context, ids []string) ([]limit.Tenant, error)
	// TenantPage returns tenants with ids above after, by id.
	TenantPage(ctx context.Context, after string, n int) ([]limit.Tenant, error)
	// TenantChanges returns tenants changed after a change number, each once, the oldest change first. It also returns
	// the number up to which the answer is complete. When n tenants are returned there may be more.
	TenantChanges(ctx context.Context, after int64, n int) ([]limit.Tenant, int64, error)
	// CreateTenant adds a tenant, or returns ErrExists. A plan that the policy in force
	// lacks, a parent that does not exist, or more than limit.MaxTenantLevels levels are ErrInvalid.
	CreateTenant(ctx context.Context, actor, id, plan, parent string) (limit.Tenant, error)
	// SetTenantPlan changes a tenant's plan. ErrInvalid when the policy in force lacks
	// it, or the tenant's overrides do not fit it.
	SetTenantPlan(ctx context.Context, actor, id, plan string) (limit.Tenant, error)
	// SetTenantLimit gives a tenant an override, which replaces its own of that name. The same override again changes
	// nothing. The limit must be one of its plan, unless it has an override of it already or add is true. ErrInvalid
	// where not, and where the override does not fit.
	SetTenantLimit(ctx context.Context, actor, id string, o policy.LimitSpec, add bool) (policy.LimitChange, error)
	// UnsetTenantLimit takes the override of a limit back; without one nothing changes.
	UnsetTenantLimit(ctx context.Context, actor, id, name string) (policy.LimitChange, error)

	// SchedulePlan schedules a change of a tenant's plan at a future time. The same change again is returned as it is.
	// ErrExists if another plan comes at that time. ErrInvalid as SetTenantPlan's, for a time that is past or too far,
	// and beyond MaxPlanChanges.
	SchedulePlan(ctx context.Context, actor, id, plan string, at time.Time) (limit.Tenant, error)
	// UnschedulePlan takes such a change back; ErrNotFound without it.
	UnschedulePlan(ctx context.Context, actor, id string, at time.Time) (limit.Tenant, error)
	// PlanChanges returns a tenant's waiting changes, the next one first.
	PlanChanges(ctx context.Context, id string) ([]terms.PlanChange, error)
	// MakePlanChanges makes the changes whose time has come, each as of its time. Any caller may call it, however
	// often; it is cheap where none is due. It returns the changes that could not be made. They wait for another policy
	// or another change of their tenant. They count from the end of the last statement closed since. They are dropped
	// if the tenant was given a plan after their time.
	MakePlanChanges(ctx context.Context) (failed []terms.PlanChange, err error)

	// Subscriber returns how a tenant is billed, and which plan it had when. That is written with every change of its
	// plan, and never changed. ErrNotFound without the tenant.
	Subscriber(ctx context.Context, tenant string) (terms.Subscriber, error)
	// Payers returns who pays for a tenant and when: its changes, and those of all tenants that ever were above it. A
	// change is written where a document changes the tenant's parent or billing. It counts from the next slot on, or a
	// later time that the document says, and never in a closed statement's period. Apply refuses, with ErrInvalid, a
	// payer of more than MaxMembers at a time, or of more than MaxEverMembers over time.
	Payers(ctx context.Context, tenant string) (terms.Payers, error)
	// Household returns the tenants that a tenant ever paid for, and who paid for them when.
	Household(ctx context.Context, tenant string) (terms.Household, error)
	// Standings returns, in few statements, the inputs of tenants' spending, in the tenants' order. Subscriber,
	// Statements and Credits return the same.
	Standings(ctx context.Context, tenants []string) ([]terms.Standing, error)
	// CloseStatement keeps a statement. Its Number follows the tenant's last, its period begins where the last one
	// ended, and its block is not below that one's. Otherwise it was made from other data than is stored: ErrConflict
	// or ErrInvalid. It is ErrConflict too if the tenant's billing has changed since the statement was made. If the
	// last statement is of this period, that one is returned, and nothing is changed.
	//
	// burns are what the statement uses of credits, kept in the same transaction. ErrConflict if a credit has another
	// remainder than the statement was made from. The carried credits are given in the same transaction: once, from the
	// period's end on, without an end.
	CloseStatement(ctx context.Context, actor string, c terms.Closed, carried []billing.Carried, burns ...billing.Burn) (terms.Closed, error)
	// GiveCredit gives a tenant a credit from now on. The same credit again returns the stored one. ErrExists if the
	// stored one of its id differs, ErrInvalid as Check's.
	GiveCredit(ctx context.Context, actor string, c terms.Credit) (terms.Credit, error)
	// VoidCredit ends a credit: its remainder lapses at the end of the present period. Voided again, it stays as it is.
	VoidCredit(ctx context.Context, actor, id, reason string) (terms.Credit, error)
	// Credits returns all credits of a tenant by id, including used ones.
	Credits(ctx context.Context, tenant string) ([]terms.Credit, error)
	// Statement returns the closed statement of a period; ErrNotFound without it.
	Statement(ctx context.Context, tenant, period string) (terms.Closed, error)
	// Statements returns a tenant's closed statements below before (0: all), newest first,
	// without their documents.
	Statements(ctx context.Context, tenant string, before int64, n int) ([]terms.Closed, error)
	// CloseTenant ends a tenant for good. It is denied from now on, its plan ends, its waiting changes are dropped, and
	// nothing changes it again. It stays in the books, its last period can be closed, and its id is never free again.
	// Closed again, it stays as it is. ErrInvalid while others are under it, or the policy in force names it.
	CloseTenant(ctx context.Context, actor, id string) (limit.Tenant, error)
	// SetSuspended suspends a tenant or lets it go on. The same state again changes nothing.
	SetSuspended(ctx context.Context, actor, id string, suspended bool) (limit.Tenant, error)

	Switches(ctx context.Context) (limit.Switches, error)
	// SetSwitches replaces all switches and returns them as stored. They are stored under their revision, or under the
	// next one if that is 0. ErrConflict when the stored ones have that revision or a higher one.
	SetSwitches(ctx context.Context, actor string, s limit.Switches) (limit.Switches, error)

	// CreateKey stores a key; ErrExists if its id or hash is taken.
	CreateKey(ctx context.Context, actor string, k Key) (Key, error)
	// RotateKey stores the key next with the rights of the key old. The old key ends after the overlap, or at its own
	// end if that is earlier. ErrNotFound without old, ErrInvalid where it is not good or was rotated already,
	// ErrExists as CreateKey's.
	RotateKey(ctx context.Context, actor, old string, next Key, overlap time.Duration) (Key, error)
	// RevokeKey ends a key; revoking it again changes nothing.
	RevokeKey(ctx context.Context, actor, id string) (Key, error)
	// Keys returns keys with ids above after, by id. good leaves out revoked and ended keys.
	Keys(ctx context.Context, after string, n int, good bool) ([]Key, error)
	// UseKeys notes when keys were last used, by id. A time earlier than the stored one changes nothing. It is no
	// change of the keys, and in no audit log.
	UseKeys(ctx context.Context, used map[string]time.Time) error
	// Parents returns the parents of tenants with one of the ids, or with an id that has one of the prefixes.
	Parents(ctx context.Context, ids, prefixes []string) ([]string, error)

	// Secret returns the 32 random bytes of that name. All servers of this store share them; they are made when first
	// asked for.
	Secret(ctx context.Context, name string) ([]byte, error)

	// Audit returns changes, newest first.
	Audit(ctx context.Context, q AuditQuery) ([]AuditRow, error)

	// Lead makes holder the leader of a task for a term from now, unless another leads, and reports whether it leads.
	// It saves work, but does not keep anything from being done twice.
	Lead(ctx context.Context, task, holder string, term time.Duration) (bool, error)
}
