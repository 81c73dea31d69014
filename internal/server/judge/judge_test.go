package judge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/servertest"
)

// verdict is what a judge says of an agent's row once it has learned what it names.
func verdict(t *testing.T, j *Judge, r ledger.Row) error {
	t.Helper()
	if err := j.Learn(t.Context(), "k", "a", []ledger.Row{r}); err != nil {
		t.Fatal(err)
	}
	defer j.Done("a")
	return j.Accept("a", r)
}

// hung is a policy store that answers nobody.
type hung struct{ policystore.Store }

func (hung) Version(ctx context.Context, _ int64) (policystore.Version, error) {
	<-ctx.Done()
	return policystore.Version{}, fmt.Errorf("%w: %w", policystore.ErrUnavailable, ctx.Err())
}

func (hung) Tenants(ctx context.Context, _ []string) ([]limit.Tenant, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", policystore.ErrUnavailable, ctx.Err())
}

// A policy store that hangs holds up nobody's intake, and nothing is accepted for it: rows that cannot be checked are
// said to be such.
func TestJudgeOfAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := New(hung{})
		rows := make([]ledger.Row, ledger.MaxRows)
		begun := time.Now()
		for i := range rows {
			rows[i] = ledger.Row{Tenant: fmt.Sprint(i), Limit: "requests", Version: int64(i%9 + 1)}
			if err := j.Accept("a", rows[i]); !errors.Is(err, ledger.ErrUnchecked) {
				t.Fatalf("row %d: got %v, want it unchecked", i, err)
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("judging %d rows took %v, want no look-up", len(rows), took)
		}
		if err := j.Learn(t.Context(), "k", "a", rows); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("learning: got %v, want that it is unavailable", err)
		}
		if took := time.Since(begun); took > judgeWait {
			t.Errorf("learning took %v, want at most %v", took, judgeWait)
		}
	})
}

// That a tenant was missing for one agent says nothing of it to another: it may have been created since.
func TestAMissingTenantIsOneAgentsOwn(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	s := &servertest.Restored{Store: servertest.StoreOf(t, at, "plans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}")}
	j := New(s)
	row := ledger.Row{Tenant: "acme", Limit: "a", Meter: "a", Version: 1}
	if err := j.Learn(t.Context(), "k", "evil", []ledger.Row{row}); err != nil {
		t.Fatal(err)
	}
	if err := j.Accept("evil", row); err == nil || errors.Is(err, ledger.ErrUnchecked) {
		t.Errorf("a tenant that there is not: got %v, want it refused", err)
	}
	if _, err := s.CreateTenant(t.Context(), "ann", "acme", "p", ""); err != nil {
		t.Fatal(err)
	}
	if err := verdict(t, j, row); err != nil {
		t.Errorf("it was created, and another agent's row is refused: %v", err)
	}
}

// garbled is a policy store with a version that this server cannot read: a newer one wrote it.
type garbled struct{ policystore.Store }

func (g garbled) Version(ctx context.Context, number int64) (policystore.Version, error) {
	v, err := g.Store.Version(ctx, number)
	if number == 1 {
		v.Text = "plans: {p: {of_a_later_release: true}}"
	}
	return v, err
}

// Rows of a version that this server cannot read go to quarantine and say why, instead of being held by their agent for
// ever.
func TestAVersionThatCannotBeReadHoldsNobody(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	j := New(garbled{servertest.StoreOf(t, at, "plans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}")})
	err := verdict(t, j, ledger.Row{Tenant: "acme", Limit: "a", Meter: "a", Version: 1})
	if err == nil || errors.Is(err, ledger.ErrUnchecked) || !strings.Contains(err.Error(), "policy version 1 cannot be read by this server") || !strings.Contains(err.Error(), "of_a_later_release") {
		t.Errorf("got %v, want it refused, with the reason", err)
	}
}

// The agents that something is looked up for are bounded, and so is what may be looked up for one.
func TestLookUpsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
		j := New(servertest.StoreOf(t, at, "plans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}"))
		row := func(i int) []ledger.Row {
			return []ledger.Row{{Tenant: fmt.Sprint("t", i), Limit: "a", Meter: "a", Version: 1}}
		}
		var err error
		asked := 0
		for ; err == nil && asked < 2*judgeBurst; asked++ {
			err = j.Learn(t.Context(), "k", "evil", row(asked))
		}
		if !errors.Is(err, errLookups) || asked < judgeBurst {
			t.Errorf("after %d look-ups: got %v, want that there were too many", asked, err)
		}
		if err := j.Learn(t.Context(), "k", "good", row(0)); err != nil {
			t.Errorf("another agent: %v", err)
		}
	})
}

// Whoever invents agents under a key keeps nobody else from having rows judged: they share what is looked up for one
// key, and take their places from one another.
func TestInventedAgentsKeepNobodyFromLookUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
		j := New(servertest.StoreOf(t, at, "plans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}"))
		row := func(i int) []ledger.Row {
			return []ledger.Row{{Tenant: fmt.Sprint("t", i), Limit: "a", Meter: "a", Version: 1}}
		}
		var err error
		asked := 0
		for ; err == nil && asked < 3*judgeFamily*judgeBurst; asked++ {
			err = j.Learn(t.Context(), "evil", fmt.Sprint("agent-", asked), row(asked))
		}
		if !errors.Is(err, errKeyLookups) || asked < judgeFamily*judgeBurst-2 {
			t.Errorf("after %d look-ups of as many agents: got %v, want that there were too many of the key", asked, err)
		}
		if n := len(j.agents); n > judgedOfKey {
			t.Errorf("%d agents of one key are remembered, want at most %d", n, judgedOfKey)
		}
		if err := j.Learn(t.Context(), "k", "good", row(0)); err != nil {
			t.Errorf("another key's agent: %v", err)
		}
		// As many keys as it takes, all of whose agents are being looked up for; then of some, which rest.
		for k := range 4 {
			for i := range judgedOfKey {
				if in := j.of(fmt.Sprint("evil-", k), fmt.Sprint("agent-", k, "-", i)); in != nil {
					in.asking <- struct{}{}
				}
			}
		}
		if j.of("evil-0", "one more") != nil {
			t.Error("a key has more than its share, of which none rests")
		}
		if j.of("ann", Operators) == nil {
			t.Error("agents keep operators from correcting")
		}
		<-j.agents["agent-2-7"].asking
		if j.of("k", "better") == nil || j.agents["agent-2-7"] != nil {
			t.Error("one that rests is not forgotten for another key's")
		}
		if n := len(j.agents); n > judgedAgents+1 {
			t.Errorf("%d agents are remembered", n)
		}
	})
}

// recent forgets what was not asked for, and keeps what is.
func TestRecent(t *testing.T) {
	r := newRecent[int, int](10)
	for i := range 1000 {
		r.put(i, -i)
		if v, ok := r.get(0); !ok || v != 0 {
			t.Fatalf("after %d others what is asked for all the time was forgotten", i)
		}
	}
	if n := len(r.now) + len(r.was); n > 20 {
		t.Errorf("it holds %d, want at most 20", n)
	}
	if _, ok := r.get(500); ok {
		t.Error("what nobody asked for is still there")
	}
}

// What a faulty tenant used is judged by the policy alone, and no row of another tenant is let
// through unjudged for it.
func TestFaultyTenantJudged(t *testing.T) { servertest.OnEngines(t, testFaultyTenantJudged) }

func testFaultyTenantJudged(t *testing.T, on servertest.Engine) {
	s := servertest.NewSpoilt(t, on)
	s.Spoil("b")
	j := New(s.Store)
	if err := verdict(t, j, ledger.Row{Tenant: "b", Limit: "own", Meter: "own", Version: 1}); err != nil {
		t.Errorf("a meter that the faulty tenant may have: %v", err)
	}
	if err := verdict(t, j, ledger.Row{Tenant: "a", Limit: "own", Meter: "own", Version: 1}); err == nil {
		t.Error("a meter that there is not was accepted, because another tenant is faulty")
	}
}

// What the judge knew of the policy and the tenants of before it does not hold against rows of a restored one.
func TestJudgeOfARestoredPolicy(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	const before, after = "plans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}\ntenants: [{id: acme, plan: p}, {id: late, plan: p}]",
		"plans: {p: {limits: [{name: b, rate: 1/s, meter: b}]}}\ntenants: [{id: acme, plan: p}]"
	s := &servertest.Restored{Store: servertest.StoreOf(t, at, before)}
	j := New(s)
	accepts := func(what, meter, tenant string, want bool) {
		t.Helper()
		if err := verdict(t, j, ledger.Row{Tenant: tenant, Limit: meter, Meter: meter, Version: 1}); (err == nil) != want {
			t.Errorf("%s: meter %s of tenant %s: %v", what, meter, tenant, err)
		}
	}
	accepts("at first", "a", "late", true)
	accepts("at first", "b", "acme", false)
	s.Store = servertest.StoreOf(t, at.Add(time.Hour), after)
	j.Forget()
	accepts("restored", "a", "acme", false)
	accepts("restored", "b", "acme", true)
	accepts("restored", "b", "late", false)
}

// reading is a store during whose reads something happens.
type reading struct {
	policystore.Store
	during func()
}

func (r *reading) Version(ctx context.Context, number int64) (policystore.Version, error) {
	v, err := r.Store.Version(ctx, number)
	if r.during != nil {
		r.during()
	}
	return v, err
}

// What was being read of the policy of before when it was found to be another is not remembered.
func TestJudgeForgetsWhatItReads(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	r := &reading{Store: servertest.StoreOf(t, at, "default_plan: p\nplans: {p: {limits: [{name: a, rate: 1/s, meter: a}]}}")}
	j := New(r)
	row := ledger.Row{Tenant: "acme", Limit: "b", Meter: "b", Version: 1}
	r.during = j.Forget
	if err := verdict(t, j, row); err == nil {
		t.Fatal("a meter that there is not was accepted")
	}
	r.Store, r.during = servertest.StoreOf(t, at, "default_plan: p\nplans: {p: {limits: [{name: b, rate: 1/s, meter: b}]}}"), nil
	if err := verdict(t, j, row); err != nil {
		t.Errorf("a meter of the policy that there is now: %v", err)
	}
}
