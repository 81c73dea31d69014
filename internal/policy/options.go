package policy

import (
	"fmt"
	"strconv"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// unlimited is the overage of a soft limit without a cap.
const unlimited = "unlimited"

// enforce compiles how strictly the limit holds: enforcement, epsilon, overage.
func (c *compiler) enforce() {
	s, l := c.s, &c.l
	was := l.Enforcement
	if c.given["enforcement"] {
		switch s.Enforcement {
		case limit.Hard.String():
			l.Enforcement = limit.Hard
		case limit.Strict.String():
			l.Enforcement = limit.Strict
		case limit.Soft.String():
			l.Enforcement = limit.Soft
		default:
			c.bad("enforcement", "enforcement is %s; allowed are strict, hard and soft", limit.Quote(s.Enforcement))
		}
	}
	c.epsilon(was)
	if l.Enforcement != limit.Soft {
		l.OveragePPM = 0
		if c.given["overage"] {
			c.bad("overage", "only enforcement: soft admits above the limit; leave overage out, or make the limit soft")
		}
		return
	}
	if c.given["overage"] {
		ppm, ok := parsePercentUpTo(s.Overage, limit.MaxOveragePPM)
		switch {
		case s.Overage == unlimited:
			l.OveragePPM = 0
		case !ok:
			c.bad("overage", "overage is %s; it must be a percentage of the limit up to 100000%% with at most four decimals, such as 20%%, or unlimited", limit.Quote(s.Overage))
		case ppm == 0:
			c.bad("overage", "overage is 0%%: that is enforcement: hard; write unlimited for no cap")
		default:
			l.OveragePPM = ppm
		}
	}
	if l.OveragePPM == 0 || !c.shaped {
		return
	}
	// As parts of a million both factors are below 2^30.
	units := l.Rate.Units * l.OveragePPM / limit.Micro
	most := int64(limit.MaxUnits)
	if l.Algorithm == limit.SlidingWindowLog {
		most = limit.MaxLog
	}
	switch {
	case units < 1 || l.Burst > 0 && l.Burst*l.OveragePPM < limit.Micro:
		c.bad("overage", "%s of the limit is less than one unit; give a larger overage", percent(l.OveragePPM))
	case units > most || l.Burst*l.OveragePPM/limit.Micro > most:
		c.bad("overage", "%s of the limit is more than %d units; write unlimited", percent(l.OveragePPM), most)
	case l.Rate.Per > 0 && !limit.Flows(units, l.Rate.Per.Microseconds()):
		c.bad("overage", "%s of the limit is more than %d units a second; write unlimited", percent(l.OveragePPM), int64(limit.MaxFlow))
	}
}

// epsilon depends on the algorithm and the enforcement if it is not given.
func (c *compiler) epsilon(was limit.Enforcement) {
	s, l, base := c.s, &c.l, c.at.base
	if !c.shaped {
		return
	}
	if isExact(l.Algorithm) || l.Enforcement == limit.Strict {
		l.EpsilonPPM = 0
	} else if base != nil && (was == limit.Strict || isExact(base.Algorithm)) {
		l.EpsilonPPM = limit.DefaultEpsilonPPM
	}
	if !c.given["epsilon"] {
		return
	}
	ppm, ok := parsePercent(s.Epsilon)
	switch {
	case !ok:
		c.bad("epsilon", "epsilon is %s; it must be a percentage of 0%% to 100%% with at most four decimals, such as 5%% or 0.5%%", limit.Quote(s.Epsilon))
	case l.Enforcement == limit.Strict && ppm != 0:
		c.bad("epsilon", "enforcement: strict means an epsilon of 0%%; leave epsilon out, or use enforcement: hard")
	default:
		l.EpsilonPPM = ppm
	}
}

// isExact reports whether an algorithm has no error to allow.
func isExact(a limit.Algorithm) bool { return a == limit.SlidingWindowLog || a == limit.Concurrency }

// options compiles the other options of a limit, and refuses contradictions.
func (c *compiler) options() {
	s, l := c.s, &c.l
	if c.given["queue"] {
		l.Queue = *s.Queue
	}
	if c.given["wait"] {
		c.duration("wait", s.Wait, limit.MaxWait, &l.Wait)
	}
	if l.Queue == 0 {
		if c.given["wait"] && l.Wait > 0 {
			c.bad("wait", "wait is how long a request may queue; give a queue too, such as queue: 100")
		}
		l.Wait = 0
	}
	if c.given["borrow"] {
		l.Borrow = *s.Borrow
	}
	if c.given["lockout"] {
		c.duration("lockout", s.Lockout, limit.MaxPer, &l.Lockout)
	}
	if c.given["fallback_hold"] {
		c.duration("fallback_hold", s.FallbackHold, limit.MaxHold, &l.FallbackHold)
	}
	if s.Shadow != nil {
		l.Shadow = *s.Shadow
	}
	if s.Allow != nil {
		l.Allow = c.conditions("allow", s.Allow)
	}
	if s.Deny != nil {
		l.Deny = c.conditions("deny", s.Deny)
	}
	if c.given["first_touch"] {
		switch s.FirstTouch {
		case limit.TouchCredit.String():
			l.FirstTouch = limit.TouchCredit
		case limit.TouchAsk.String():
			l.FirstTouch = limit.TouchAsk
		case limit.TouchAdmit.String():
			l.FirstTouch = limit.TouchAdmit
		default:
			c.bad("first_touch", "first_touch is %s; allowed are credit, ask and admit", limit.Quote(s.FirstTouch))
		}
	}
	if c.given["on_change"] {
		switch s.OnChange {
		case limit.ChangeKeep.String():
			l.OnChange = limit.ChangeKeep
		case limit.ChangeProrate.String():
			l.OnChange = limit.ChangeProrate
		default:
			c.bad("on_change", "on_change is %s; allowed are keep and prorate", limit.Quote(s.OnChange))
		}
	}
	c.reserve()
	c.contradictions()
}

func (c *compiler) duration(key, written string, most time.Duration, to *time.Duration) {
	d, ok := parseSpan(written, most)
	if !ok {
		c.bad(key, "%s is %s; it must be a duration of whole milliseconds up to %s, such as 500ms, 30s or 1h30m", key, limit.Quote(written), limit.ShortDuration(most))
		return
	}
	*to = d
}

// reserve compiles the part of the capacity that is kept for requests of a higher priority.
func (c *compiler) reserve() {
	s, l := c.s, &c.l
	if s.Reserve != nil {
		l.Reserve = limit.Reserve{}
		if *s.Reserve == (ReserveSpec{}) && !c.at.tenant {
			c.bad("reserve", "reserve says nothing; give it low, and normal where requests of high priority have a part of their own")
		}
		for _, part := range []struct {
			key, written string
			to           *int64
		}{{"low", s.Reserve.Low, &l.Reserve.LowPPM}, {"normal", s.Reserve.Normal, &l.Reserve.NormalPPM}} {
			if part.written == "" {
				continue
			}
			ppm, ok := parsePercent(part.written)
			if !ok || ppm == 0 || ppm == limit.Micro {
				c.bad("reserve."+part.key, "reserve of %s is %s; it must be a percentage above 0%% and below 100%% with at most four decimals, such as 20%%", part.key, limit.Quote(part.written))
				continue
			}
			*part.to = ppm
		}
		if r := l.Reserve; r.NormalPPM > r.LowPPM {
			c.bad("reserve", "what normal priority may not spend, low may not either: reserve of low (%s) must be at least that of normal (%s)", percent(r.LowPPM), percent(r.NormalPPM))
		}
	}
	if !c.shaped {
		return
	}
	for _, ppm := range []int64{l.Reserve.NormalPPM, l.Reserve.LowPPM} {
		if units := capacity(l); ppm > 0 && units*ppm < limit.Micro {
			c.bad("reserve", "%s of a bucket of %d units is less than one unit; give a larger reserve", percent(ppm), units)
			break
		}
	}
}

// contradictions refuses pairs of options that undo each other. The fault is at the first of the two that is written
// here: the other may be the plan's.
func (c *compiler) contradictions() {
	l := &c.l
	pairs := []struct {
		both bool
		a, b string
		text string
	}{
		{c.shaped && l.Algorithm == limit.LeakyBucket && l.Enforcement == limit.Soft, "enforcement", "algorithm", "a leaky bucket paces, and enforcement: soft would admit what comes faster; use hard or strict"},
		{l.Borrow > 0 && l.Enforcement == limit.Strict, "borrow", "enforcement", "borrow goes above the limit, and enforcement: strict never does"},
		{l.FirstTouch == limit.TouchAdmit && l.Enforcement == limit.Strict, "first_touch", "enforcement", "first_touch: admit gives credit, and enforcement: strict gives none"},
		{l.FirstTouch == limit.TouchAdmit && l.Algorithm == limit.SlidingWindowLog, "first_touch", "algorithm", "first_touch: admit gives credit, and a sliding_window_log is exact; use another algorithm, or first_touch: ask"},
		{l.FirstTouch == limit.TouchAdmit && l.Lockout > 0, "first_touch", "lockout", "first_touch: admit would let in whom the lockout keeps out, at each agent anew"},
		{l.Lockout > 0 && l.Enforcement == limit.Soft, "lockout", "enforcement", "a lockout denies once the limit is exceeded, and enforcement: soft admits then"},
		{l.Lockout > 0 && l.Queue > 0, "lockout", "queue", "a lockout denies once the limit is exceeded, and a queue lets requests wait then"},
		{l.Reserve != limit.Reserve{} && l.Enforcement == limit.Soft, "reserve", "enforcement", "a reserve keeps the last of the limit from low priority, and enforcement: soft admits beyond the last"},
		{l.Shadow && l.Meter != "", "shadow", "meter", "a shadow limit bills nothing; leave its meter out, or give the meter to a limit of its own (no rate: it only counts)"},
		{l.Shadow && l.Enforcement == limit.Soft, "shadow", "enforcement", "a shadow limit admits everything, so that there is no overage; leave enforcement out"},
		{l.Shadow && l.Algorithm == limit.Concurrency, "shadow", "algorithm", "a shadow limit holds no request, so that nobody tells when one ends and its slot is free: what it would deny is not to be known. Give it slots that are enough, without shadow, or a rate"},
	}
	for _, p := range pairs {
		if !p.both {
			continue
		}
		key := ""
		if _, ok := c.s.lines[p.a]; ok || c.given[p.a] {
			key = p.a
		} else if _, ok := c.s.lines[p.b]; ok || c.given[p.b] {
			key = p.b
		}
		c.bad(key, "%s", p.text)
	}
}

// variants compiles the limit's variants, each for a share of the plan's tenants.
func (c *compiler) variants() {
	s, l := c.s, &c.l
	l.Variants = nil // an override's limit is one tenant's, as it says, whatever variant the tenant would have had
	if s.Variants == nil {
		return
	}
	switch {
	case c.at.top:
		c.bad("variants", "variants are for shares of a plan's tenants; a limit of the top level has none")
		return
	case c.at.tenant:
		c.bad("variants", "variants are for shares of a plan's tenants, and this is one tenant's; give it the values themselves")
		return
	}
	names := make(map[string]bool)
	total := int64(0)
	for i := range s.Variants {
		v, key := &s.Variants[i], variantKey(i)
		bad := func(format string, args ...any) {
			c.bad(key, "variant %s: %s", v.Name, fmt.Sprintf(format, args...))
		}
		if v.Name == "" {
			c.bad(key, "a variant has no name; give it one")
			continue
		}
		if names[v.Name] {
			bad("it is there twice")
			continue
		}
		names[v.Name] = true
		out := limit.Variant{Name: v.Name}
		ppm, ok := parsePercent(v.Share)
		if !ok || ppm == 0 {
			bad("share is %s; it must be a percentage of the tenants, above 0%% and up to 100%%, with at most four decimals, such as 10%%", limit.Quote(v.Share))
		}
		out.SharePPM = ppm
		total += ppm
		if v.Rate == "" && v.Burst == nil && v.Slots == nil {
			bad("it changes nothing; give it a rate, a burst or slots (tenants in no variant have the limit as it is)")
		}
		if c.shaped {
			c.variant(v, &out, bad)
		}
		l.Variants = append(l.Variants, out)
	}
	if total > limit.Micro {
		c.bad("variants", "the shares of the variants sum to %s of the tenants; at most 100%% there are", percent(total))
	}
}

// variantKey is where a limit keeps the line of its variant i.
func variantKey(i int) string { return "variants." + strconv.Itoa(i) }

// variant compiles the values of one variant, as the limit's algorithm allows them.
func (c *compiler) variant(v *VariantSpec, out *limit.Variant, bad func(format string, args ...any)) {
	l := &c.l
	reason := without[l.Algorithm]
	for _, k := range []struct {
		key   string
		given bool
	}{{"rate", v.Rate != ""}, {"burst", v.Burst != nil}, {"slots", v.Slots != nil}} {
		if k.given && reason[k.key] != "" {
			bad("%s", reason[k.key])
			return
		}
	}
	if v.Burst != nil {
		out.Burst = *v.Burst
	}
	if v.Slots != nil {
		out.Slots = *v.Slots
	}
	if v.Rate == "" {
		return
	}
	r, err := limit.ParseRate(v.Rate)
	if err != nil {
		bad("%v", err)
		return
	}
	if what := rateProblem(l.Algorithm, r); what != "" {
		bad("%s", what)
	}
	if l.Algorithm.Windowed() && (r.Per != l.Rate.Per || r.Calendar != l.Rate.Calendar) {
		bad("its windows must be those of the limit, %s; only the units may differ, not %s", l.Rate, r)
	}
	out.Rate = r
	if l.Algorithm == limit.TokenBucket && out.Burst == 0 {
		out.Burst = grown(l, r)
		if out.Burst > limit.MaxUnits {
			bad("with the limit's burst of %d for %s its burst would be %d; give a burst of at most %d", l.Burst, l.Rate, out.Burst, int64(limit.MaxUnits))
		}
	}
}
