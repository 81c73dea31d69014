package terms

import "time"

// Bounds of plan changes that wait.
const (
	MaxPlanChanges = 100                        // of a tenant
	MaxPlanAhead   = 100 * 366 * 24 * time.Hour // from now
)

// PlanChange is a plan that a tenant will have from a time on.
type PlanChange struct {
	Tenant string
	Plan   string
	At     time.Time
	Actor  string // who asked for it
	Failed string // why it was not made at its time; empty before
}
