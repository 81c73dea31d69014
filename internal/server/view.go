package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

const (
	// pollEvery is how often the store is asked for changes: with one look of an
	// agent's stream on top, a change is everywhere well within a second.
	pollEvery = 200 * time.Millisecond
	// pollSlowly is the pace while the store does not answer.
	pollSlowly = time.Second
	// pollTimeout bounds one look.
	pollTimeout = 3 * time.Second
	// loadTimeout bounds loading tenants for one call, which other renewals wait for.
	loadTimeout = 500 * time.Millisecond
	// changePage is how many changed tenants are read at a time.
	changePage = policy.MaxPage
	// keptChanges bounds the changed tenants that are kept for streams that have not
	// been sent them yet; a stream further behind is told to ask for everything.
	keptChanges = 8 * changePage
	// cachedTenants bounds the tenants in memory, known and unknown ones; beyond it
	// the one that was not used for longest goes.
	cachedTenants = 100_000
)

// inForce is the policy and the switches that hold now: immutable.
type inForce struct {
	rules    *limit.Rules     // nil before a policy is known
	document *policy.Document // that the rules are made of: it has the prices, which agents are not told
	shadow   *limit.Rules     // of the version that is tried beside it; nil for none
	switches limit.Switches
	switched int64 // counts the changes of switches
	heads    policy.Heads
	forgot   int64 // leases granted before, Unix microseconds, the lease store may have forgotten; 0 before it was looked at
	// turn counts the changes of policy, switches and forgot; streams compare it.
	turn int64
}

// tried is the shadow's version; 0 for none.
func (f *inForce) tried() int64 {
	if f.shadow == nil {
		return 0
	}
	return f.shadow.Policy.Version
}

func (f *inForce) version() int64 {
	if f.rules == nil {
		return 0
	}
	return f.rules.Policy.Version
}

// Keys is who may call, as the view has it from the store.
type Keys interface {
	// Load puts stored keys in force; ever says whether one was ever made.
	Load(keys []policy.Key, ever bool)
	// Moved is told of tenants that changed, and whom each is below; all is that any may have.
	Moved(parents map[string]string, all bool)
	// FlushUsed writes when keys were used, when that is due.
	FlushUsed(ctx context.Context, write func(context.Context, map[string]time.Time) error) error
	// Sweep ends the streams whose keys are no longer good.
	Sweep()
}

// view is what this server knows of the policy store: policy, switches and keys
// whole, tenants as far as they are in use. It goes on answering from memory while
// the store is away.
type view struct {
	store   policy.Store
	keys    Keys
	log     *slog.Logger
	metrics *metrics
	clock   func() time.Time     // says whether a plan change is due
	learned func(limit.Switches) // told what switches the store has
	// replaced is told that the store is another: one that was restored, whose numbers fell.
	replaced func()

	polling sync.Mutex    // held by the one look under way
	begun   time.Time     // of the last look that ended; guarded by polling
	poke    chan struct{} // asks for a look at once

	mu      sync.Mutex
	now     *inForce
	err     error         // why the last look failed
	looked  bool          // one look has succeeded
	changed chan struct{} // closed at the next change
	cache   tenantCache
	faulty  faultyTenants
	journal journal
}

func newView(store policy.Store, keys Keys, log *slog.Logger, m *metrics) *view {
	return &view{
		store: store, keys: keys, log: log, metrics: m, clock: time.Now,
		learned: func(limit.Switches) {}, replaced: func() {},
		poke:    make(chan struct{}, 1),
		now:     &inForce{switches: limit.Switches{}},
		changed: make(chan struct{}),
		cache:   newTenantCache(cachedTenants),
		faulty:  make(faultyTenants),
	}
}

// run looks for changes until ctx ends.
func (v *view) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-v.poke:
		}
		every := pollEvery
		if err := v.look(ctx); err != nil {
			every = pollSlowly
		} else if err := v.keys.FlushUsed(ctx, v.store.UseKeys); err != nil {
			v.log.Warn("when keys were last used could not be written; it is tried again", "error", err)
		}
		v.keys.Sweep() // keys end by themselves too
		timer.Reset(every)
	}
}

// wake asks for a look before the next is due.
func (v *view) wake() {
	select {
	case v.poke <- struct{}{}:
	default: // one is asked for already
	}
}

// look brings the view up to date. Whoever made a change calls it too, to see the
// change in what it answers next. Callers that wait for one another share a look:
// one that began after they came is as good as their own.
func (v *view) look(ctx context.Context) error {
	came := time.Now()
	v.polling.Lock()
	defer v.polling.Unlock()
	if v.begun.After(came) {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.err
	}
	began := time.Now()
	lookCtx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	err := v.update(lookCtx)
	if ctx.Err() != nil {
		return ctx.Err() // the caller went away; that says nothing of the store
	}
	v.begun = began
	result := "ok"
	if err != nil {
		result = "error"
	}
	v.metrics.refresh.WithLabelValues(result).Inc()
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil && v.err == nil {
		v.log.Warn("policy store does not answer; going on with what is in memory", "error", err)
	}
	if err == nil && v.err != nil {
		v.log.Info("policy store answers again")
	}
	v.err = err
	v.looked = v.looked || err == nil
	return err
}

func (v *view) update(ctx context.Context) error {
	heads, err := v.heads(ctx)
	if err != nil {
		return err
	}
	was := v.current()
	next := *was
	next.heads = heads
	first, news := !v.known(), false
	if !first && fell(&was.heads, &heads) {
		v.replaced()
	}
	keys := first || heads.Keys != was.heads.Keys
	if keys {
		if err := v.loadKeys(ctx, heads.Keys); err != nil {
			return err
		}
	}
	if first || heads.Switches != was.heads.Switches {
		sw, err := v.store.Switches(ctx)
		if err != nil {
			return err
		}
		v.learned(sw)
	}
	if heads.Version != was.version() && heads.Version != 0 {
		if next.rules, next.document, err = v.loadRules(ctx, 0); err != nil {
			return err
		}
		news = true
	}
	if heads.Shadow != was.heads.Shadow {
		if next.shadow, err = v.loadShadow(ctx, heads.Shadow); err != nil {
			return err
		}
		news = true
	}
	var tenants []change
	overrun := false
	switch {
	case first || heads.Tenants < was.heads.Tenants: // the store was replaced
		overrun = true
	case heads.Tenants > was.heads.Tenants:
		if tenants, overrun, err = v.loadChanges(ctx, was.heads.Tenants, &next.heads); err != nil {
			return err
		}
	}
	if heads == was.heads && !news && len(tenants) == 0 && !overrun && !keys {
		return nil
	}
	v.put(was, &next, tenants, overrun, news)
	return nil
}

// fell reports whether numbers are below what they were, which they never are in one and the same store.
func fell(was, now *policy.Heads) bool {
	return now.Version < was.Version || now.Tenants < was.Tenants || now.Switches < was.Switches || now.Keys < was.Keys
}

// heads are the store's, once the plan changes are made whose time has come: whichever server
// looks first makes them.
func (v *view) heads(ctx context.Context) (policy.Heads, error) {
	heads, err := v.store.Heads(ctx)
	if err != nil || heads.Due == 0 || heads.Due > v.clock().UnixMilli() {
		return heads, err
	}
	failed, err := v.store.MakePlanChanges(ctx)
	for _, c := range failed {
		v.log.Error("a plan change cannot be made at its time; it waits for another policy, or another change of the tenant",
			"tenant", c.Tenant, "plan", c.Plan, "at", c.At, "error", c.Failed)
	}
	if err != nil {
		return heads, err
	}
	return v.store.Heads(ctx)
}

// put brings what was read into force.
func (v *view) put(was, next *inForce, tenants []change, overrun, news bool) {
	if overrun || len(tenants) > 0 {
		v.keys.Moved(parentsOf(tenants), overrun)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if overrun {
		v.cache.age()
		v.journal.restart(next.heads.Tenants)
	} else {
		for _, c := range tenants {
			for _, t := range c.tenants {
				v.cache.replace(t)
				v.soundLocked(t.ID)
			}
			for id, f := range c.faulty {
				v.faultyLocked(id, f)
			}
			v.journal.add(change{after: c.after, through: c.through, tenants: c.tenants})
		}
	}
	if next.version() != was.version() {
		// Overrides take what they leave out from the plan: they have to be read again.
		v.cache.ageOverrides()
		clear(v.faulty) // with another policy they may be sound
		v.metrics.faultyTenants.Set(0)
		v.metrics.policyVersion.Set(float64(next.version()))
		v.log.Info("policy in force", "version", next.version())
	}
	v.metrics.tenants.Set(float64(v.cache.len()))
	if news {
		v.metrics.limits.follow(next.rules, next.shadow)
	}
	// Switches have a way of their own, and may have changed meanwhile; so does what the lease store says.
	next.switches, next.switched, next.forgot, next.turn = v.now.switches, v.now.switched, v.now.forgot, v.now.turn
	if news {
		next.turn++
	}
	v.nowLocked(next)
}

// nowLocked puts next in force and tells the streams.
func (v *view) nowLocked(next *inForce) {
	v.now = next
	close(v.changed)
	v.changed = make(chan struct{})
}

// switchTo puts switches in force, unless they are.
func (v *view) switchTo(sw limit.Switches) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if was := v.now.switches; was.Revision == sw.Revision && was.Mode == sw.Mode && slices.Equal(was.Denied, sw.Denied) {
		return
	}
	next := *v.now
	next.switches = sw
	next.switched++
	v.metrics.switchMode.Set(float64(sw.Mode))
	v.metrics.switchDenied.Set(float64(len(sw.Denied)))
	next.turn++
	v.nowLocked(&next)
}

// forgotBefore takes what the lease store says; it only rises.
func (v *view) forgotBefore(at int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := *v.now
	next.forgot = max(next.forgot, at)
	next.turn++
	v.nowLocked(&next)
}

// answers reports whether the store did when it was last asked.
func (v *view) answers() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.looked && v.err == nil
}

// loadShadow returns the rules of a version that is tried, nil for none. One that this
// server cannot use is none to it: what is in force must not depend on a trial.
func (v *view) loadShadow(ctx context.Context, number int64) (*limit.Rules, error) {
	if number == 0 {
		v.log.Info("no shadow policy is tried")
		return nil, nil
	}
	rules, _, err := v.loadRules(ctx, number)
	switch {
	case errors.Is(err, policy.ErrUnavailable), ctx.Err() != nil:
		return nil, err
	case err != nil:
		v.log.Error("the shadow policy is not tried by this server", "version", number, "error", err)
		return nil, nil
	}
	v.log.Info("shadow policy tried", "version", number)
	return rules, nil
}

// loadRules returns a version's rules, and its document; 0 is the one in force.
func (v *view) loadRules(ctx context.Context, number int64) (*limit.Rules, *policy.Document, error) {
	version, err := v.store.Version(ctx, number)
	if err != nil {
		return nil, nil, err
	}
	doc, err := policy.Parse(version.File, []byte(version.Text))
	if err != nil {
		return nil, nil, fmt.Errorf("policy version %d cannot be read by this server: %w", version.Number, err)
	}
	rules, err := limit.CompilePolicy(doc.Policy(version.Number))
	if err != nil {
		return nil, nil, fmt.Errorf("policy version %d cannot be used by this server: %w", version.Number, err)
	}
	return rules, doc, nil
}

// loadKeys reads the keys that are good, page by page; changes is how often keys ever changed.
func (v *view) loadKeys(ctx context.Context, changes int64) error {
	var all []policy.Key
	for after := ""; ; {
		keys, err := v.store.Keys(ctx, after, policy.MaxPage, true)
		if err != nil {
			return err
		}
		all = append(all, keys...)
		if len(keys) < policy.MaxPage {
			break
		}
		after = keys[len(keys)-1].ID
	}
	v.keys.Load(all, changes > 0)
	return nil
}

// loadChanges reads the tenants that changed after a number. When there are more
// than are worth sending one by one, it reports an overrun instead.
func (v *view) loadChanges(ctx context.Context, after int64, heads *policy.Heads) (changes []change, overrun bool, err error) {
	for n := 0; n < keptChanges; {
		tenants, through, err := v.store.TenantChanges(ctx, after, changePage)
		var faulty policy.FaultyTenants
		if err != nil && !errors.As(err, &faulty) {
			return nil, false, err
		}
		if through > after {
			c := change{after: after, through: through}
			c.tenants, c.faulty = apart(tenants, faulty)
			changes = append(changes, c)
		}
		n += len(tenants)
		after = through
		if len(tenants) < changePage {
			heads.Tenants = after
			return changes, false, nil
		}
	}
	return nil, true, nil
}

// current is what is in force.
func (v *view) current() *inForce {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// known reports whether the store was read at least once.
func (v *view) known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.looked
}

// check is why the policy cannot be served, or is not fresh.
func (v *view) check(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.err != nil:
		return v.err
	case !v.looked:
		return fmt.Errorf("the policy store was not read yet")
	case v.now.rules == nil:
		return errNoPolicy
	}
	return nil
}

// resolved is a tenant and its rules, or why they are not known.
type resolved struct {
	tenant limit.Tenant
	parent string        // as it is stored: of one that cannot be made out it may be another than the tenant's
	placed bool          // the parent is known, in spite of err maybe
	rules  []*limit.Rule // of its plan, with overrides; none when it has no plan
	shadow []*limit.Rule // of its plan under the shadow policy, likewise; none without one
	err    error
}

// tenants resolves ids in their order: from memory, and those that are not there
// in one read. While the store is away it is not waited for. A tenant that cannot be
// made out is what it was before; one that was not known before is an error of its own.
func (v *view) tenants(ctx context.Context, ids []string) []resolved {
	out := make([]resolved, len(ids))
	var missing []string
	var places []int
	faults := 0
	v.mu.Lock()
	now, away, since := v.now, v.err, v.now.heads.Tenants
	for i, id := range ids {
		if r, ok := v.cache.get(id, now); ok {
			out[i] = r
			continue
		}
		if f, ok := v.faulty[id]; ok && (away != nil || time.Now().Before(f.again)) {
			out[i] = v.lastLocked(id, now, f)
			faults++
			continue
		}
		missing = append(missing, id)
		places = append(places, i)
	}
	v.mu.Unlock()
	v.metrics.tenantLoads.WithLabelValues("hit").Add(float64(len(ids) - len(missing) - faults))
	v.metrics.tenantLoads.WithLabelValues("error").Add(float64(faults))
	if len(missing) == 0 {
		return out
	}
	var loaded []limit.Tenant
	var faulty policy.FaultyTenants
	err := away
	if err == nil {
		loadCtx, cancel := context.WithTimeout(ctx, loadTimeout)
		loaded, err = v.store.Tenants(loadCtx, missing)
		cancel()
		if errors.As(err, &faulty) {
			err = nil
		}
		if err == nil && len(loaded) != len(missing) {
			err = fmt.Errorf("the policy store answered %d of %d tenants", len(loaded), len(missing))
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.metrics.tenantLoads.WithLabelValues("error").Add(float64(len(missing)))
		for i, at := range places {
			out[at].err = err
			if f, ok := v.faulty[missing[i]]; ok {
				out[at] = v.lastLocked(missing[i], now, f)
			}
		}
		return out
	}
	v.metrics.tenantLoads.WithLabelValues("miss").Add(float64(len(missing) - len(faulty)))
	v.metrics.tenantLoads.WithLabelValues("error").Add(float64(len(faulty)))
	for i, t := range loaded {
		// What changed while it was read is answered, but not kept: it may be stale.
		keep := v.now == now && v.journal.unchanged(t.ID, since)
		if fault := faulty[t.ID]; fault != nil {
			f := faultyTenant{err: fault, parent: t.Parent}
			if keep {
				v.faultyLocked(t.ID, f)
			}
			out[places[i]] = v.lastLocked(t.ID, now, f)
			continue
		}
		if keep {
			v.soundLocked(t.ID)
		}
		out[places[i]] = v.cache.put(t, now, keep)
	}
	v.metrics.tenants.Set(float64(v.cache.len()))
	return out
}
