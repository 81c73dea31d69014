package ledgertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// lostKeys: an epoch holds usage back as long as the key is good that it was last heard of under. It comes back with its next
// report or hold under another, and what it brings late is settled.
func lostKeys(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	begun := clock.Now()
	for i, id := range []string{"k1", "k2", "k3"} {
		e.Tamper(t, fmt.Sprintf(`INSERT INTO access_keys (id, hash, role, agent, note, created_ms, revoked_ms) VALUES ('%s', '%064d', 'agent', '*', '', 1, 0)`, id, i))
	}
	end := func(key, column string, at time.Time) {
		t.Helper()
		e.Tamper(t, fmt.Sprintf("UPDATE access_keys SET %s = %d WHERE id = '%s'", column, at.UnixMilli(), key))
	}
	settle := func(g *agent, key string, through time.Time, status ledger.Status, rows ...ledger.Row) {
		t.Helper()
		r := g.report(through, rows...)
		r.Key = key
		if err := wantStatus(t.Context(), s, r, status); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(when string, want time.Time) {
		t.Helper()
		u, err := s.Usage(t.Context(), ledger.Query{Tenant: "acme"})
		if err != nil || !u.Complete.Equal(want) {
			t.Errorf("%s: complete through %s, held back by %v, %v, want %s", when, u.Complete, u.Lagging, err, want)
		}
	}
	sweep := func(when string, want int) {
		t.Helper()
		n, err := books.LoseKeys(t.Context(), "server", time.Minute)
		if err != nil || n != want {
			t.Errorf("%s: %d epochs were lost, %v, want %d", when, n, err, want)
		}
	}
	rotated, stolen, kept := agent{id: "rotated", epoch: 1}, agent{id: "stolen", epoch: 1}, agent{id: "kept", epoch: 1}
	nobody := agent{id: "nobody", epoch: 1} // as of an open server, and of before epochs noted keys
	for _, g := range []*agent{&rotated, &stolen} {
		settle(g, "k1", begun, ledger.Settled, row(begun, "acme", 5))
	}
	settle(&kept, "k3", begun, ledger.Settled, row(begun, "acme", 5))
	settle(&nobody, "", begun, ledger.Settled, row(begun, "acme", 5))
	// Of one that settled nothing there is only what it holds; a fenced one has a twin.
	if err := s.Hold(t.Context(), ledger.Hold{Epoch: ledger.Epoch{Agent: "new", Epoch: 1}, Tenants: []string{"acme"}, Key: "k1"}); err != nil {
		t.Fatal(err)
	}
	twin := agent{id: "twin", epoch: 1}
	settle(&twin, "k1", begun, ledger.Settled, row(begun, "acme", 1))
	twin = agent{id: "twin", epoch: 1}
	settle(&twin, "k1", begun, ledger.Fenced, row(begun, "acme", 2))

	clock.Advance(10 * time.Minute)
	sweep("all keys are good", 0)
	settle(&rotated, "k2", clock.Now(), ledger.Settled)
	settle(&kept, "k3", clock.Now(), ledger.Settled)
	settle(&nobody, "", clock.Now(), ledger.Settled)
	second := clock.Now()
	end("k1", "revoked_ms", second)
	sweep("the key was revoked just now: others' reports may be under way under the next", 0)
	complete("while it is revoked", latest(begun))
	clock.Advance(time.Minute)
	sweep("a minute later", 3)
	sweep("again", 0)
	complete("of the rest", second)
	verify(t, s)
	var of []string
	for _, r := range strings.Split(strings.TrimSpace(audited(t, e)), "\n") {
		of = append(of, strings.SplitN(r, " ", 2)[1])
	}
	if got, want := strings.Join(of, ", "), "server agent.lost new/1, server agent.lost stolen/1, server agent.lost twin/1"; got != want {
		t.Errorf("audited: got %s, want %s", got, want)
	}
	why := e.Query(t, "SELECT agent, state, reason FROM frontier WHERE state IN ('lost', 'gone') ORDER BY agent")
	if len(why) != 3 || why[0][1] != "lost" || !strings.Contains(why[0][2], "key k1 was revoked at 2026-04-01T00:00:00Z") || why[2][1] != "gone" {
		t.Errorf("they are lost as %v", why)
	}

	// Under another key it has its weight again: by a hold that its agent asked for, as by a report.
	if err := s.Hold(t.Context(), ledger.Hold{Epoch: ledger.Epoch{Agent: "new", Epoch: 1}, Tenants: []string{"acme"}, Key: "k2"}); err != nil {
		t.Fatal(err)
	}
	complete("of one that holds again", latest(begun))
	settle(&agent{id: "new", epoch: 1}, "k2", clock.Now(), ledger.Settled)
	complete("of what it settled", second)
	settle(&stolen, "k2", begun.Add(time.Minute), ledger.Settled, row(begun, "acme", 7))
	complete("of one that reports again", begun.Add(time.Minute))
	if err := wantTotal(t.Context(), s, "acme", 5+5+5+5+1+7); err != nil {
		t.Error(err)
	}
	clock.Advance(time.Minute)
	sweep("under a good key", 0)
	end("k2", "expires_ms", clock.Now().Add(-time.Minute))
	sweep("a key that ended by itself", 0)
	end("k2", "revoked_ms", clock.Now().Add(-time.Minute))
	sweep("and was revoked", 3)
	complete("of those whose keys are good, or that had none", second)
	verify(t, s)
}
