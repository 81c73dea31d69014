package policystore

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
)

// Bounds of what a store keeps and answers.
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

// Heads are the numbers of the newest changes: equal numbers mean that nothing has
// changed. They rise, without gaps in what they cover, in the order of commits.
type Heads struct {
	Version  int64 // policy version in force; 0 before the first
	Tenants  int64 // number of the last change of a tenant
	Switches int64 // revision of the switches
	Keys     int64
	Shadow   int64 // policy version that is tried beside the one in force; 0 for none
	// Due is when the next plan change that waits is to be made, Unix milliseconds; 0 for none.
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

// Applied says what applying a document did, or would do.
type Applied struct {
	Version int64    // now in force
	Changed bool     // false when the document says what is in force already
	Changes []string // the difference, a sentence each, at most MaxChanges
	// Warnings say what was set by hand and the document takes back, by line of the document; at most MaxFaults.
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

// AuditQuery selects changes; what is empty selects all.
type AuditQuery struct {
	Before int64 // numbers below it; 0 for all
	N      int   // at most
	Actor  string
	Action string // how it begins
	Object string
}

// Store keeps policy versions, tenants, keys, switches and the audit log. All
// servers of an installation share it, and poll Heads to learn of changes. Its
// methods are safe for concurrent use; changes are serialized. An error that
// says nothing else wraps ErrUnavailable. actor is who makes the change, for the log.
type Store interface {
	// Heads is one cheap read.
	Heads(ctx context.Context) (Heads, error)

	// Apply makes doc the next version and upserts the tenants it names, unless all
	// is so already. base is the version that doc was made from; another in force is
	// ErrConflict, and 0 applies over any. ErrInvalid names the stored tenants that do
	// not fit doc: their plan is gone from it, or their overrides contradict it. A dry
	// run checks the same and changes nothing.
	Apply(ctx context.Context, actor string, doc *policy.Document, base int64, dryRun bool) (Applied, error)
	// SetShadow stores doc as a version that is tried beside the one in force, in the place
	// of the shadow before it; Applied.Version is its number, and Changes say how it
	// differs from the version in force. Nothing is stored where doc says what is in force or
	// tried already. The tenants that doc names stay as they are. ErrInvalid as Apply's, or
	// before the first policy.
	SetShadow(ctx context.Context, actor string, doc *policy.Document, dryRun bool) (Applied, error)
	// ClearShadow ends the trial, and returns the version that was tried; 0 when none was.
	ClearShadow(ctx context.Context, actor string) (int64, error)
	// PromoteShadow applies the shadow's document as the next version and ends the trial.
	// ErrNotFound when there is no shadow; ErrConflict when it is not that version (0: any).
	PromoteShadow(ctx context.Context, actor string, version int64) (Applied, error)
	// Shadows returns the versions that were ever stored to be tried.
	Shadows(ctx context.Context) ([]int64, error)
	// Rollback applies the document of an earlier version as the next one.
	Rollback(ctx context.Context, actor string, version int64) (Applied, error)
	// Version returns a version, 0 the one in force; ErrNotFound without it.
	Version(ctx context.Context, number int64) (Version, error)
	// Versions returns versions below before (0: all), newest first, without their texts.
	Versions(ctx context.Context, before int64, n int) ([]Version, error)

	// Parent reports whether any tenant's parent is that one.
	Parent(ctx context.Context, id string) (bool, error)
	// Tenants returns the tenants of those ids in their order, with overrides compiled
	// against the policy in force; where there is none, Exists is false. With FaultyTenants as the
	// error the answer is whole but for the overrides of these; so are those of TenantPage and TenantChanges.
	Tenants(ctx context.Context, ids []string) ([]limit.Tenant, error)
	// TenantPage returns tenants with ids after that one, by id.
	TenantPage(ctx context.Context, after string, n int) ([]limit.Tenant, error)
	// TenantChanges returns tenants changed after that change number, oldest change
	// first and each once, and the number through which the answer is complete. When
	// n tenants are returned there may be more.
	TenantChanges(ctx context.Context, after int64, n int) ([]limit.Tenant, int64, error)
	// CreateTenant adds a tenant, or returns ErrExists. A plan that the policy in force
	// lacks, a parent that does not exist, or more than limit.MaxTenantLevels levels are ErrInvalid.
	CreateTenant(ctx context.Context, actor, id, plan, parent string) (limit.Tenant, error)
	// SetTenantPlan changes a tenant's plan. ErrInvalid when the policy in force lacks
	// it, or the tenant's overrides do not fit it.
	SetTenantPlan(ctx context.Context, actor, id, plan string) (limit.Tenant, error)
	// SetTenantLimit gives a tenant an override, in the place of its own of that name; the same again changes nothing.
	// The limit is one of its plan, unless it has an override of it already or add is true. ErrInvalid where not, and
	// where the override does not fit.
	SetTenantLimit(ctx context.Context, actor, id string, o policy.LimitSpec, add bool) (policy.LimitChange, error)
	// UnsetTenantLimit takes the override of a limit back; without one nothing changes.
	UnsetTenantLimit(ctx context.Context, actor, id, name string) (policy.LimitChange, error)

	// SchedulePlan has a tenant's plan change at a time that is to come. What is scheduled already
	// is returned as it is; ErrExists where another plan comes at that time, ErrInvalid as
	// SetTenantPlan's, for a time that is past or too far, and beyond MaxPlanChanges.
	SchedulePlan(ctx context.Context, actor, id, plan string, at time.Time) (limit.Tenant, error)
	// UnschedulePlan takes such a change back; ErrNotFound without it.
	UnschedulePlan(ctx context.Context, actor, id string, at time.Time) (limit.Tenant, error)
	// PlanChanges returns those that wait of a tenant, the next one first.
	PlanChanges(ctx context.Context, id string) ([]terms.PlanChange, error)
	// MakePlanChanges makes the changes whose time has come, each as of its time, whoever calls it
	// and however often; it is cheap where none has. Those that could not be made wait for
	// another policy or another change of their tenant, and are returned: they count from the end of the last
	// statement that was closed since, and are dropped where the tenant was given a plan after their time.
	MakePlanChanges(ctx context.Context) (failed []terms.PlanChange, err error)

	// Subscriber returns how a tenant is billed, and which plan it had when: written with
	// every change of its plan, and never changed. ErrNotFound without the tenant.
	Subscriber(ctx context.Context, tenant string) (terms.Subscriber, error)
	// Payers returns who pays for a tenant and when: its changes, and those of all that ever were above it. They are
	// written where a document changes its parent or its billing, count from the next slot on (or a later time that the
	// document says) and never in the period of a statement that was closed. Apply refuses, with ErrInvalid, a payer of
	// more than MaxMembers at a time, or of more than MaxEverMembers over time.
	Payers(ctx context.Context, tenant string) (terms.Payers, error)
	// Household returns those that a tenant ever paid for, and who paid for them when.
	Household(ctx context.Context, tenant string) (terms.Household, error)
	// Standings returns of tenants, in their order, what spending is worked out of, in few
	// statements: Subscriber, Statements and Credits say the same.
	Standings(ctx context.Context, tenants []string) ([]terms.Standing, error)
	// CloseStatement keeps a statement. Its Number is the one after the tenant's last, its
	// period begins where the last one ended, and its block is not below that one's: otherwise
	// it was made of something else than there is, which is ErrConflict or ErrInvalid; so it is, and
	// ErrConflict, where the tenant's billing is another now than it was made by. Where the last
	// statement is of this period, that one is returned, and nothing is changed.
	// burns are what it uses of credits, kept in the same transaction: ErrConflict where something
	// else is left of one than it was made of. The credits that it carries are given in it, too: once, from the
	// period's end on, without an end.
	CloseStatement(ctx context.Context, actor string, c terms.Closed, carried []billing.Carried, burns ...billing.Burn) (terms.Closed, error)
	// GiveCredit gives a tenant a credit from now on. The same one again is that which is there;
	// ErrExists where one of its id says something else, ErrInvalid as Check's.
	GiveCredit(ctx context.Context, actor string, c terms.Credit) (terms.Credit, error)
	// VoidCredit ends a credit: what is left of it lapses with the period that this is in.
	// Voided again, it stays as it is.
	VoidCredit(ctx context.Context, actor, id, reason string) (terms.Credit, error)
	// Credits returns all of a tenant's by id, those too that are used up.
	Credits(ctx context.Context, tenant string) ([]terms.Credit, error)
	// Statement returns the closed statement of a period; ErrNotFound without it.
	Statement(ctx context.Context, tenant, period string) (terms.Closed, error)
	// Statements returns a tenant's closed statements below before (0: all), newest first,
	// without their documents.
	Statements(ctx context.Context, tenant string, before int64, n int) ([]terms.Closed, error)
	// CloseTenant ends a tenant for good: it is denied from now on, its plan ends, what waits of it is
	// dropped, and nothing changes it again. It stays in the books, its last period can be closed, and its
	// id is taken for ever. Closed again, it stays as it is. ErrInvalid while others are under it, or the
	// policy in force names it.
	CloseTenant(ctx context.Context, actor, id string) (limit.Tenant, error)
	// SetSuspended suspends a tenant or lets it go on; what is so already changes nothing.
	SetSuspended(ctx context.Context, actor, id string, suspended bool) (limit.Tenant, error)

	Switches(ctx context.Context) (limit.Switches, error)
	// SetSwitches replaces all switches and returns them as stored, under their revision or,
	// where that is 0, the next one. ErrConflict when the stored ones have that revision or a higher one.
	SetSwitches(ctx context.Context, actor string, s limit.Switches) (limit.Switches, error)

	// CreateKey stores a key; ErrExists if its id or hash is taken.
	CreateKey(ctx context.Context, actor string, k Key) (Key, error)
	// RotateKey stores a key of that id and hash that may do what the key old may, and has old end after the
	// overlap, or when it ended anyway. ErrNotFound without old, ErrInvalid where it is not good or was rotated
	// already, ErrExists as CreateKey's.
	RotateKey(ctx context.Context, actor, old string, next Key, overlap time.Duration) (Key, error)
	// RevokeKey ends a key; revoking it again changes nothing.
	RevokeKey(ctx context.Context, actor, id string) (Key, error)
	// Keys returns keys with ids after that one, by id: revoked and ended ones too, or only those that are good.
	Keys(ctx context.Context, after string, n int, good bool) ([]Key, error)
	// UseKeys notes when keys were last used, by id; earlier times than are there change nothing. It is no change
	// of the keys, and in no audit log.
	UseKeys(ctx context.Context, used map[string]time.Time) error
	// Parents returns the tenants that are a parent of one with such an id, or of one whose id begins so.
	Parents(ctx context.Context, ids, prefixes []string) ([]string, error)

	// Secret returns the 32 random bytes of that name, which all servers of this store share: made when first asked
	// for.
	Secret(ctx context.Context, name string) ([]byte, error)

	// Audit returns changes, newest first.
	Audit(ctx context.Context, q AuditQuery) ([]AuditRow, error)

	// Lead makes holder the one to do a task for a time from now, and reports whether it is:
	// not while another is. It spares work, and keeps nothing from being done twice.
	Lead(ctx context.Context, task, holder string, term time.Duration) (bool, error)
}
