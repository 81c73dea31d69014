package boot_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/internal/testenv"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func (n *node) inForce() *quotav1.PolicyVersion {
	n.t.Helper()
	v, err := n.admin().GetPolicy(n.t.Context(), &quotav1.GetPolicyRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return v.GetPolicy()
}

// An embedded server follows its file; a faulty one leaves the policy as it is.
func TestPolicyFileIsFollowed(t *testing.T) {
	c := embedded(t, policyText)
	n := start(t, c)
	if v := n.inForce(); v.Version != 1 || v.Author != "policy file" {
		t.Fatalf("in force: got version %d by %s, want 1 by the policy file", v.Version, v.Author)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(c.Policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(policyText, "100/hour", "150/hour", 1))
	eventually(t, "version 2", func() bool { return n.inForce().Version == 2 })
	write("plans: {free: {nonsense: 1}}\n")
	write(strings.Replace(policyText, "100/hour", "oops", 1))
	write(strings.Replace(policyText, "100/hour", "170/hour", 1))
	eventually(t, "version 3", func() bool { return n.inForce().Version == 3 })
	if len(n.reasons()) != 0 {
		t.Errorf("a policy file that was put right leaves reasons: %v", n.reasons())
	}
	// At the start a faulty file is an error, with its faults.
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	write("plans: {free: {nonsense: 1}}\n")
	_, err := boot.New(t.Context(), c)
	var faults fault.Faults
	if !errors.As(err, &faults) || len(faults) == 0 || faults[0].Line != 1 {
		t.Errorf("a faulty file at the start: got %v, want its faults", err)
	}
	// Without a file, what was applied stays in force.
	c.Policy = ""
	if v := start(t, c).inForce(); v.Version != 3 {
		t.Errorf("without a file: got version %d, want 3", v.Version)
	}
}

// Without anything, an embedded server has the plans that the product ships.
func TestBuiltInPolicy(t *testing.T) {
	n := start(t, boot.Embedded(t.TempDir(), ""))
	plans, err := n.admin().ListPlans(t.Context(), &quotav1.ListPlansRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, p := range plans.Plans {
		got[p.Name] = p.Limits[0].Rate.Units
	}
	if plans.DefaultPlan != "free" || got["free"] != 100 || got["paid"] != 1000 || got["enterprise"] != 10000 {
		t.Errorf("got %v, default %q, want free 100, paid 1000, enterprise 10000, default free", got, plans.DefaultPlan)
	}
	n.waitReady()
}

// Servers that share a ledger take the policy from it: a file is the first version,
// and refused when it later says something else.
func TestSharedLedgerRefusesADifferentFile(t *testing.T) {
	c := production(t, testenv.Postgres(t))
	without := start(t, c)
	eventually(t, "readiness asks for a policy", func() bool { return strings.Contains(without.reasons()["policy"], "quotactl apply") })
	c.Policy = file(t, policyText)
	if v := start(t, c).inForce(); v.Version != 1 {
		t.Fatalf("in force: got version %d, want 1", v.Version)
	}
	without.waitReady()
	// The same in other words is no difference.
	c.Policy = file(t, "# a comment\n"+policyText)
	start(t, c)
	c.Policy = file(t, strings.Replace(policyText, "100/hour", "150/hour", 1))
	_, err := boot.New(t.Context(), c)
	if !errors.Is(err, boot.ErrPolicyDiffers) || !strings.Contains(err.Error(), "150/hour") {
		t.Errorf("a different file: got %v, want a refusal that names the difference", err)
	}
	c.Policy = file(t, "plans:\n  other: {limits: []}\n") // a tenant has the plan that is gone
	if _, err := boot.New(t.Context(), c); !errors.Is(err, boot.ErrPolicyDiffers) || !strings.Contains(err.Error(), "gone from the document") {
		t.Errorf("a file that cannot be applied: got %v, want a refusal that says why", err)
	}
}

// An embedded server's file puts back what was set by hand: the log names each such thing.
func TestPolicyFileTakesBackWhatWasSetByHand(t *testing.T) {
	c := embedded(t, policyText)
	var said lines
	c.Log = slog.New(slog.NewTextHandler(&said, nil))
	n := start(t, c)
	if _, err := n.admin().SetTenantPlan(t.Context(), &quotav1.SetTenantPlanRequest{Id: "acme", Plan: "free"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Policy, []byte(strings.Replace(policyText, "100/hour", "150/hour", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "version 2", func() bool { return n.inForce().Version == 2 })
	if got := said.String(); !strings.Contains(got, "tenant acme: its plan free was set by hand; the document makes it paid") {
		t.Errorf("the log:\n%s", got)
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
