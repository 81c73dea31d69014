package wire

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// EnumToProto turns a value of the core's enumeration, which begins at 0, into the protocol's, which begins at 1: its 0 is
// UNSPECIFIED.
func EnumToProto[P ~int32, E ~uint8 | ~int](e E) P { return P(e) + 1 }

// EnumFromProto turns back what EnumToProto gave; UNSPECIFIED is the first.
func EnumFromProto[E ~uint8 | ~int, P ~int32](p P) E { return E(max(p, 1) - 1) }

// RateToProto returns nil for no rate.
func RateToProto(r limit.Rate) *quotav1.Rate {
	if r == (limit.Rate{}) {
		return nil
	}
	out := &quotav1.Rate{Units: r.Units, Calendar: quotav1.Rate_Calendar(r.Calendar)}
	if r.Calendar == limit.NoCalendar {
		out.PeriodUs = r.Per.Microseconds()
	}
	return out
}

// RateFromProto returns the zero Rate for nil. Errors wrap fault.ErrInvalid.
func RateFromProto(p *quotav1.Rate) (limit.Rate, error) {
	if p == nil {
		return limit.Rate{}, nil
	}
	if p.Calendar < 0 || p.Calendar > quotav1.Rate_CALENDAR_YEAR {
		return limit.Rate{}, fmt.Errorf("%w: calendar unit %d is not known", fault.ErrInvalid, p.Calendar)
	}
	r := limit.Rate{Units: p.Units, Calendar: limit.Calendar(p.Calendar)}
	if r.Calendar != limit.NoCalendar {
		r.Per = r.Calendar.Nominal()
	} else {
		if p.PeriodUs < limit.MinPer.Microseconds() || p.PeriodUs > limit.MaxPer.Microseconds() {
			return limit.Rate{}, fmt.Errorf("%w: period_us is %d; it must be %d to %d", fault.ErrInvalid, p.PeriodUs, limit.MinPer.Microseconds(), limit.MaxPer.Microseconds())
		}
		r.Per = time.Duration(p.PeriodUs) * time.Microsecond
	}
	if r.Units < 1 || r.Units > limit.MaxUnits {
		return limit.Rate{}, fmt.Errorf("%w: units is %d; it must be 1 to %d", fault.ErrInvalid, p.Units, int64(limit.MaxUnits))
	}
	if err := r.Validate(); err != nil {
		return limit.Rate{}, fmt.Errorf("%w: %w", fault.ErrInvalid, err)
	}
	return r, nil
}

// LimitToProto does not keep l's slices.
func LimitToProto(l limit.Limit) *quotav1.Limit {
	out := &quotav1.Limit{
		Name: l.Name, By: slices.Clone(l.By), Algorithm: quotav1.Limit_Algorithm(l.Algorithm), Rate: RateToProto(l.Rate),
		Burst: l.Burst, Meter: l.Meter, Zone: l.Zone, OnOutage: EnumToProto[quotav1.Limit_Outage](l.OnOutage),
		Enforcement: EnumToProto[quotav1.Limit_Enforcement](l.Enforcement), EpsilonPpm: l.EpsilonPPM,
		Match: matchesToProto(l.Match), Allow: matchesToProto(l.Allow), Deny: matchesToProto(l.Deny),
		Slots: l.Slots, Queue: l.Queue, WaitMs: l.Wait.Milliseconds(), OveragePpm: l.OveragePPM, Borrow: l.Borrow,
		LockoutMs: l.Lockout.Milliseconds(), Shadow: l.Shadow,
		ReserveLowPpm: l.Reserve.LowPPM, ReserveNormalPpm: l.Reserve.NormalPPM,
		FirstTouch: quotav1.Limit_FirstTouch(l.FirstTouch), FallbackHoldMs: l.FallbackHold.Milliseconds(),
		OnChange: EnumToProto[quotav1.Limit_OnChange](l.OnChange), Cost: weighingToProto(&l.Cost),
	}
	for _, v := range l.Variants {
		out.Variants = append(out.Variants, &quotav1.Variant{Name: v.Name, SharePpm: v.SharePPM, Rate: RateToProto(v.Rate), Burst: v.Burst, Slots: v.Slots})
	}
	return out
}

func matchesToProto(matches []limit.Match) []*quotav1.Match {
	var out []*quotav1.Match
	for _, m := range matches {
		out = append(out, &quotav1.Match{Attribute: m.Attribute, Patterns: slices.Clone(m.Patterns)})
	}
	return out
}

func matchesFromProto(p []*quotav1.Match) []limit.Match {
	var out []limit.Match
	for _, m := range p {
		out = append(out, limit.Match{Attribute: m.GetAttribute(), Patterns: slices.Clone(m.GetPatterns())})
	}
	return out
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// maxMillis bounds a limit's other durations.
const maxMillis = int64(limit.MaxPer / time.Millisecond)

// LimitFromProto checks every bound that the protocol states. Errors wrap fault.ErrInvalid.
func LimitFromProto(p *quotav1.Limit) (limit.Limit, error) {
	bad := func(format string, args ...any) (limit.Limit, error) {
		return limit.Limit{}, fmt.Errorf("limit %s: %w: "+format, append([]any{limit.Quote(p.GetName()), fault.ErrInvalid}, args...)...)
	}
	if !limit.ValidName(p.GetName()) {
		return bad("name must be 1 to %d bytes of [A-Za-z0-9._-]", limit.MaxNameLen)
	}
	if p.Algorithm < quotav1.Limit_ALGORITHM_TOKEN_BUCKET || p.Algorithm > quotav1.Limit_ALGORITHM_CONCURRENCY {
		return bad("algorithm %d is not known", p.Algorithm)
	}
	if p.OnOutage < 0 || p.OnOutage > quotav1.Limit_OUTAGE_CLOSED {
		return bad("on_outage %d is not known", p.OnOutage)
	}
	if p.Enforcement < 0 || p.Enforcement > quotav1.Limit_ENFORCEMENT_SOFT {
		return bad("enforcement %d is not known", p.Enforcement)
	}
	if len(p.Match) > limit.MaxMatch {
		return bad("match has %d conditions; at most %d", len(p.Match), limit.MaxMatch)
	}
	if len(p.By) > limit.MaxBy {
		return bad("by has %d attributes; at most %d", len(p.By), limit.MaxBy)
	}
	if err := ranged(
		bound{"burst", p.Burst, 0, limit.MaxUnits},
		bound{"epsilon_ppm", p.EpsilonPpm, 0, limit.Micro},
		bound{"slots", p.Slots, 0, limit.MaxUnits},
		bound{"queue", p.Queue, 0, limit.MaxQueue},
		bound{"wait_ms", p.WaitMs, 0, limit.MaxWait.Milliseconds()},
		bound{"overage_ppm", p.OveragePpm, 0, limit.MaxOveragePPM},
		bound{"borrow", p.Borrow, 0, limit.MaxUnits},
		bound{"lockout_ms", p.LockoutMs, 0, maxMillis},
		bound{"conditions of allow", int64(len(p.Allow)), 0, limit.MaxMatch},
		bound{"conditions of deny", int64(len(p.Deny)), 0, limit.MaxMatch},
		bound{"reserve_low_ppm", p.ReserveLowPpm, 0, limit.Micro},
		bound{"reserve_normal_ppm", p.ReserveNormalPpm, 0, limit.Micro},
		bound{"variants", int64(len(p.Variants)), 0, limit.MaxVariants},
		bound{"first_touch", int64(p.FirstTouch), 0, int64(quotav1.Limit_FIRST_TOUCH_ADMIT)},
		bound{"fallback_hold_ms", p.FallbackHoldMs, 0, limit.MaxHold.Milliseconds()},
		bound{"on_change", int64(p.OnChange), 0, int64(quotav1.Limit_ON_CHANGE_PRORATE)},
	); err != nil {
		return limit.Limit{}, fmt.Errorf("limit %s: %w", limit.Quote(p.Name), err)
	}
	if p.Meter != "" && !limit.ValidName(p.Meter) {
		return bad("meter must be at most %d bytes of [A-Za-z0-9._-]", limit.MaxNameLen)
	}
	if len(p.Zone) > limit.MaxNameLen {
		return bad("zone must be at most %d bytes", limit.MaxNameLen)
	}
	if p.Zone != "" {
		if _, err := limit.LoadZone(p.Zone); err != nil {
			return bad("zone: %v", err)
		}
	}
	rate, err := RateFromProto(p.Rate)
	if err != nil {
		return limit.Limit{}, fmt.Errorf("limit %s: rate: %w", limit.Quote(p.Name), err)
	}
	l := limit.Limit{
		Name: p.Name, By: slices.Clone(p.By), Algorithm: limit.Algorithm(p.Algorithm), Rate: rate,
		Burst: p.Burst, Meter: p.Meter, Zone: p.Zone, OnOutage: EnumFromProto[limit.Outage](p.OnOutage),
		Enforcement: EnumFromProto[limit.Enforcement](p.Enforcement), EpsilonPPM: p.EpsilonPpm,
		Match: matchesFromProto(p.Match), Allow: matchesFromProto(p.Allow), Deny: matchesFromProto(p.Deny),
		Slots: p.Slots, Queue: p.Queue, Wait: millis(p.WaitMs), OveragePPM: p.OveragePpm, Borrow: p.Borrow,
		Lockout: millis(p.LockoutMs), Shadow: p.Shadow,
		Reserve:    limit.Reserve{LowPPM: p.ReserveLowPpm, NormalPPM: p.ReserveNormalPpm},
		FirstTouch: limit.FirstTouch(p.FirstTouch), FallbackHold: millis(p.FallbackHoldMs), OnChange: EnumFromProto[limit.OnChange](p.OnChange),
	}
	for _, v := range p.Variants {
		rate, err := RateFromProto(v.GetRate())
		if err == nil && !limit.ValidName(v.GetName()) {
			err = invalid("name must be 1 to %d bytes of [A-Za-z0-9._-]", limit.MaxNameLen)
		}
		if err == nil {
			err = ranged(
				bound{"share_ppm", v.GetSharePpm(), 0, limit.Micro},
				bound{"burst", v.GetBurst(), 0, limit.MaxUnits},
				bound{"slots", v.GetSlots(), 0, limit.MaxUnits},
			)
		}
		if err != nil {
			return limit.Limit{}, fmt.Errorf("limit %s: variant %s: %w", limit.Quote(p.Name), limit.Quote(v.GetName()), err)
		}
		l.Variants = append(l.Variants, limit.Variant{Name: v.Name, SharePPM: v.SharePpm, Rate: rate, Burst: v.Burst, Slots: v.Slots})
	}
	if l.Cost, err = weighingFromProto(p.Cost); err != nil {
		return limit.Limit{}, fmt.Errorf("limit %s: cost: %w", limit.Quote(p.Name), err)
	}
	for _, matches := range [][]limit.Match{l.Match, l.Allow, l.Deny} {
		if err := limit.Check(matches, l.By); err != nil {
			return bad("%v", err)
		}
	}
	return l, nil
}

func limitsToProto(limits []limit.Limit) []*quotav1.Limit {
	var out []*quotav1.Limit
	for _, l := range limits {
		out = append(out, LimitToProto(l))
	}
	return out
}

func limitsFromProto(p []*quotav1.Limit, most int) ([]limit.Limit, error) {
	if len(p) > most {
		return nil, fmt.Errorf("%w: %d limits; at most %d", fault.ErrInvalid, len(p), most)
	}
	var out []limit.Limit
	for _, l := range p {
		c, err := LimitFromProto(l)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// PlanToProto does not keep p's slices.
func PlanToProto(p limit.Plan) *quotav1.Plan {
	return &quotav1.Plan{Name: p.Name, Limits: limitsToProto(p.Limits)}
}

// PlanFromProto checks every bound. Errors wrap fault.ErrInvalid.
func PlanFromProto(p *quotav1.Plan) (limit.Plan, error) {
	if !limit.ValidName(p.GetName()) {
		return limit.Plan{}, fmt.Errorf("%w: a plan's name must be 1 to %d bytes of [A-Za-z0-9._-]", fault.ErrInvalid, limit.MaxNameLen)
	}
	limits, err := limitsFromProto(p.Limits, limit.MaxPlanLimits)
	if err != nil {
		return limit.Plan{}, fmt.Errorf("plan %s: %w", limit.Quote(p.Name), err)
	}
	return limit.Plan{Name: p.Name, Limits: limits}, nil
}

// PolicyToProto does not keep what p points to.
func PolicyToProto(p *limit.Policy) *quotav1.Policy {
	out := &quotav1.Policy{
		Version: p.Version, DefaultPlan: p.DefaultPlan, Limits: limitsToProto(p.Limits),
		SlotSeconds: int64(p.Slot / time.Second), Costs: slices.Clone(p.Costs), Likely: likelyToProto(p.Likely),
	}
	for _, plan := range p.Plans {
		out.Plans = append(out.Plans, PlanToProto(plan))
	}
	for _, g := range p.Gateways {
		out.Gateways = append(out.Gateways, &quotav1.Gateway{Name: g.Name, Domain: g.Domain, Descriptors: maps.Clone(g.Descriptors), After: slices.Clone(g.After), Hits: maps.Clone(g.Hits)})
	}
	return out
}

// PolicyFromProto checks every bound. Errors wrap fault.ErrInvalid.
func PolicyFromProto(p *quotav1.Policy) (*limit.Policy, error) {
	if p == nil {
		return nil, fmt.Errorf("%w: no policy", fault.ErrInvalid)
	}
	if p.Version < 0 {
		return nil, fmt.Errorf("%w: version is %d; it must be at least 0", fault.ErrInvalid, p.Version)
	}
	if p.SlotSeconds < 1 || p.SlotSeconds > 3600 || 3600%p.SlotSeconds != 0 {
		return nil, fmt.Errorf("%w: slot_seconds is %d; it must divide an hour", fault.ErrInvalid, p.SlotSeconds)
	}
	if len(p.Plans) > limit.MaxPlans {
		return nil, fmt.Errorf("%w: %d plans; at most %d", fault.ErrInvalid, len(p.Plans), limit.MaxPlans)
	}
	out := &limit.Policy{Version: p.Version, DefaultPlan: p.DefaultPlan, Slot: time.Duration(p.SlotSeconds) * time.Second}
	if err := costNames(p.Costs); err != nil {
		return nil, err
	}
	out.Costs = slices.Clone(p.Costs)
	var err error
	if out.Likely, err = likelyFromProto(p.Likely, p.Costs); err != nil {
		return nil, err
	}
	if out.Limits, err = limitsFromProto(p.Limits, limit.MaxTopLimits); err != nil {
		return nil, err
	}
	for _, plan := range p.Plans {
		c, err := PlanFromProto(plan)
		if err != nil {
			return nil, err
		}
		out.Plans = append(out.Plans, c)
	}
	for _, g := range p.Gateways {
		if g == nil {
			continue
		}
		out.Gateways = append(out.Gateways, limit.Gateway{Name: g.Name, Domain: g.Domain, Descriptors: maps.Clone(g.Descriptors), After: slices.Clone(g.After), Hits: maps.Clone(g.Hits)})
	}
	return out, nil
}

// TenantToProto does not keep t's slices.
func TenantToProto(t limit.Tenant) *quotav1.Tenant {
	return &quotav1.Tenant{
		Id: t.ID, Exists: t.Exists, Plan: t.Plan, Parent: t.Parent, Overrides: limitsToProto(t.Overrides),
		Revision: t.Revision, Suspended: t.Suspended || t.Capped, Capped: t.Capped && !t.Suspended, Closed: t.Closed,
	}
}

// TenantFromProto checks every bound. Errors wrap fault.ErrInvalid.
func TenantFromProto(p *quotav1.Tenant) (limit.Tenant, error) {
	if err := TenantID("id", p.GetId()); err != nil {
		return limit.Tenant{}, err
	}
	if p.Parent != "" {
		if err := TenantID("parent", p.Parent); err != nil {
			return limit.Tenant{}, err
		}
	}
	if p.Plan != "" && !limit.ValidName(p.Plan) {
		return limit.Tenant{}, fmt.Errorf("tenant %s: %w: plan must be at most %d bytes of [A-Za-z0-9._-]", limit.Quote(p.Id), fault.ErrInvalid, limit.MaxNameLen)
	}
	overrides, err := limitsFromProto(p.Overrides, limit.MaxPlanLimits)
	if err != nil {
		return limit.Tenant{}, fmt.Errorf("tenant %s: %w", limit.Quote(p.Id), err)
	}
	return limit.Tenant{
		ID: p.Id, Exists: p.Exists, Plan: p.Plan, Parent: p.Parent, Overrides: overrides,
		Revision: p.Revision, Suspended: p.Suspended && !p.Capped || p.Closed, Capped: p.Capped, Closed: p.Closed,
	}, nil
}

// SwitchesToProto does not keep s's slices.
func SwitchesToProto(s limit.Switches) *quotav1.Switches {
	return &quotav1.Switches{Mode: EnumToProto[quotav1.Switches_Mode](s.Mode), DeniedTenants: slices.Clone(s.Denied), Revision: s.Revision}
}

// SwitchesFromProto checks every bound; nil means none set. Errors wrap fault.ErrInvalid.
func SwitchesFromProto(p *quotav1.Switches) (limit.Switches, error) {
	if p.GetMode() < 0 || p.GetMode() > quotav1.Switches_MODE_SHADOW_ALL {
		return limit.Switches{}, fmt.Errorf("%w: mode %d is not known", fault.ErrInvalid, p.GetMode())
	}
	if len(p.GetDeniedTenants()) > limit.MaxDenied {
		return limit.Switches{}, fmt.Errorf("%w: %d denied_tenants; at most %d", fault.ErrInvalid, len(p.DeniedTenants), limit.MaxDenied)
	}
	if err := ranged(bound{"revision", p.GetRevision(), 0, maxCount}); err != nil {
		return limit.Switches{}, err
	}
	for _, id := range p.GetDeniedTenants() {
		if err := TenantID("denied_tenants", id); err != nil {
			return limit.Switches{}, err
		}
	}
	return limit.Switches{Mode: EnumFromProto[limit.Mode](p.GetMode()), Denied: slices.Clone(p.GetDeniedTenants()), Revision: p.GetRevision()}, nil
}
