package view

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const (
	// pollEvery is how often the store is asked for changes. With one look of an agent's stream on top, a change is
	// everywhere well within a second.
	pollEvery = 200 * time.Millisecond
	// pollSlowly is the pace while the store does not answer.
	pollSlowly = time.Second
	// pollTimeout bounds one look.
	pollTimeout = 3 * time.Second
	// loadTimeout bounds loading tenants for one call, which other renewals wait for.
	loadTimeout = 500 * time.Millisecond
	// changePage is how many changed tenants are read at a time.
	changePage = policystore.MaxPage
	// keptChanges bounds the changed tenants that are kept for streams to send. A stream further behind is told to ask
	// for everything.
	keptChanges = 8 * changePage
	// cachedTenants bounds the tenants in memory, known and unknown ones. Beyond it the least recently used one goes.
	cachedTenants = 100_000
)

// Keys is told of the store's keys: see authn.Keyring.
type Keys interface {
	// Load puts stored keys in force; ever says whether one was ever made.
	Load(keys []policystore.Key, ever bool)
	// Moved is told of changed tenants, and their parents now. all says that any tenant may have changed.
	Moved(parents map[string]string, all bool)
	// FlushUsed writes the last uses of keys, when that is due.
	FlushUsed(ctx context.Context, write func(context.Context, map[string]time.Time) error) error
	// Sweep ends the streams whose keys are no longer good.
	Sweep()
}

// View is what this server knows of the policy store. It has policy, switches and keys whole, and the tenants in use.
// It goes on answering from memory while the store is away.
type View struct {
	store   policystore.Store
	keys    Keys
	log     *slog.Logger
	metrics *metrics
	clock   func() time.Time // says whether a plan change is due
	hooks   Hooks

	polling sync.Mutex    // held by the one look under way
	begun   time.Time     // of the last look that ended; guarded by polling
	poke    chan struct{} // asks for a look at once

	mu      sync.Mutex
	now     *InForce
	err     error         // why the last look failed
	looked  bool          // one look has succeeded
	changed chan struct{} // closed at the next change
	cache   tenantCache
	faulty  faultyTenants
	journal journal
}

// Hooks are told what the view finds, by the look that finds it.
type Hooks struct {
	Switches func(limit.Switches)            // those that the store has
	Replaced func()                          // the store is another: one that was restored, whose numbers fell
	Rules    func(rules, tried *limit.Rules) // the policy in force is another, or the one that is tried
}

// New returns a view of a store that was not looked at yet; now says whether a plan change is due.
func New(store policystore.Store, keys Keys, now func() time.Time, log *slog.Logger, r prometheus.Registerer) (*View, error) {
	m, err := newMetrics(r)
	return &View{
		store: store, keys: keys, log: log, metrics: m, clock: now,
		hooks:   Hooks{Switches: func(limit.Switches) {}, Replaced: func() {}, Rules: func(_, _ *limit.Rules) {}},
		poke:    make(chan struct{}, 1),
		now:     &InForce{Switches: limit.Switches{}},
		changed: make(chan struct{}),
		cache:   newTenantCache(cachedTenants),
		faulty:  make(faultyTenants),
	}, err
}

// Tell sets the hooks; nil ones are not called. It is called before the first look.
func (v *View) Tell(h Hooks) {
	if h.Switches != nil {
		v.hooks.Switches = h.Switches
	}
	if h.Replaced != nil {
		v.hooks.Replaced = h.Replaced
	}
	if h.Rules != nil {
		v.hooks.Rules = h.Rules
	}
}

// Run looks for changes until ctx ends.
func (v *View) Run(ctx context.Context) error {
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
		if err := v.Look(ctx); err != nil {
			every = pollSlowly
		} else if err := v.keys.FlushUsed(ctx, v.store.UseKeys); err != nil {
			v.log.Warn("when keys were last used could not be written; it is tried again", "error", err)
		}
		v.keys.Sweep() // keys end by themselves too
		timer.Reset(every)
	}
}

// Wake asks for a look before the next is due.
func (v *View) Wake() {
	select {
	case v.poke <- struct{}{}:
	default: // one is asked for already
	}
}

// Look brings the view up to date. A caller that made a change calls it too, to have the change in its next answers.
// Waiting callers share a look: one that began after they came is as good as their own.
func (v *View) Look(ctx context.Context) error {
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

func (v *View) update(ctx context.Context) error {
	heads, err := v.heads(ctx)
	if err != nil {
		return err
	}
	was := v.Current()
	next := *was
	next.Heads = heads
	first, news := !v.known(), false
	if !first && fell(&was.Heads, &heads) {
		v.hooks.Replaced()
	}
	keys := first || heads.Keys != was.Heads.Keys
	if keys {
		if err := v.loadKeys(ctx, heads.Keys); err != nil {
			return err
		}
	}
	if first || heads.Switches != was.Heads.Switches {
		sw, err := v.store.Switches(ctx)
		if err != nil {
			return err
		}
		v.hooks.Switches(sw)
	}
	if heads.Version != was.Version() && heads.Version != 0 {
		if next.Rules, next.Document, err = v.loadRules(ctx, 0); err != nil {
			return err
		}
		news = true
	}
	if heads.Shadow != was.Heads.Shadow {
		if next.Shadow, err = v.loadShadow(ctx, heads.Shadow); err != nil {
			return err
		}
		news = true
	}
	var tenants []change
	overrun := false
	switch {
	case first || heads.Tenants < was.Heads.Tenants: // the store was replaced
		overrun = true
	case heads.Tenants > was.Heads.Tenants:
		if tenants, overrun, err = v.loadChanges(ctx, was.Heads.Tenants, &next.Heads); err != nil {
			return err
		}
	}
	if heads == was.Heads && !news && len(tenants) == 0 && !overrun && !keys {
		return nil
	}
	v.put(was, &next, tenants, overrun, news)
	return nil
}

// fell reports whether numbers are lower than before, which never happens within one store.
func fell(was, now *policystore.Heads) bool {
	return now.Version < was.Version || now.Tenants < was.Tenants || now.Switches < was.Switches || now.Keys < was.Keys
}

// heads are the store's, after due plan changes are made. The first server that looks makes them.
func (v *View) heads(ctx context.Context) (policystore.Heads, error) {
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
func (v *View) put(was, next *InForce, tenants []change, overrun, news bool) {
	if overrun || len(tenants) > 0 {
		v.keys.Moved(parentsOf(tenants), overrun)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if overrun {
		v.cache.age()
		v.journal.restart(next.Heads.Tenants)
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
	if next.Version() != was.Version() {
		// Overrides take missing fields from the plan: they have to be read again.
		v.cache.ageOverrides()
		clear(v.faulty) // with another policy they may be sound
		v.metrics.faultyTenants.Set(0)
		v.metrics.policyVersion.Set(float64(next.Version()))
		v.log.Info("policy in force", "version", next.Version())
	}
	v.metrics.tenants.Set(float64(v.cache.len()))
	if news {
		v.hooks.Rules(next.Rules, next.Shadow)
	}
	// Switches, and the lease store's news, come by other ways and may have changed meanwhile.
	next.Switches, next.switched, next.forgot, next.turn = v.now.Switches, v.now.switched, v.now.forgot, v.now.turn
	if news {
		next.turn++
	}
	v.nowLocked(next)
}

// nowLocked puts next in force and tells the streams.
func (v *View) nowLocked(next *InForce) {
	v.now = next
	close(v.changed)
	v.changed = make(chan struct{})
}

// SwitchTo puts switches in force, unless they are.
func (v *View) SwitchTo(sw limit.Switches) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if was := v.now.Switches; was.Revision == sw.Revision && was.Mode == sw.Mode && slices.Equal(was.Denied, sw.Denied) {
		return
	}
	next := *v.now
	next.Switches = sw
	next.switched++
	v.metrics.switchMode.Set(float64(sw.Mode))
	v.metrics.switchDenied.Set(float64(len(sw.Denied)))
	next.turn++
	v.nowLocked(&next)
}

// ForgotBefore takes the lease store's time of forgotten leases; it only rises.
func (v *View) ForgotBefore(at int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := *v.now
	next.forgot = max(next.forgot, at)
	next.turn++
	v.nowLocked(&next)
}

// Answers reports whether the store answered when it was last asked.
func (v *View) Answers() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.looked && v.err == nil
}

// Current is what is in force.
func (v *View) Current() *InForce {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// known reports whether the store was read at least once.
func (v *View) known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.looked
}

// Check says why the policy cannot be served, or is not fresh.
func (v *View) Check(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.err != nil:
		return v.err
	case !v.looked:
		return fmt.Errorf("the policy store was not read yet")
	case v.now.Rules == nil:
		return errNoPolicy
	}
	return nil
}
