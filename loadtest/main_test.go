package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/load"
	"github.com/f4ee788f/quota/loadtest/stack"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(t *testing.T, file string) load.Result {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r load.Result
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func document(t *testing.T, tenants int) string {
	t.Helper()
	p, err := load.NewPlans(load.Config{Tenants: tenants, Limits: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p.Document
}

// embedded is a server that runs already, under the policy of a load of so many tenants.
func embedded(t *testing.T, tenants int) *stack.Stack {
	t.Helper()
	s, err := stack.Embedded(t.Context(), document(t, tenants))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A small load over embedded engines: the ledger has what was admitted, and the
// saturated tenants are denied.
func TestLoadOverEmbeddedEngines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	var out bytes.Buffer
	args := []string{"--engines", "memory", "--gateways", "2", "--tenants", "10", "--duration", "2s", "--distribution", "zipf", "--fold-interval", "1s", "--json", file}
	if err := run(t.Context(), args, &out, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	r := read(t, file)
	if !r.LedgerEqual || r.LedgerUnits != r.AdmittedUnits || r.AdmittedUnits == 0 {
		t.Errorf("ledger %d, admitted %d, equal %v", r.LedgerUnits, r.AdmittedUnits, r.LedgerEqual)
	}
	if r.Denied == 0 || r.Saturated == 0 || r.Saturated == 10 {
		t.Errorf("denied %d, saturated tenants %d of 10: want some and not all", r.Denied, r.Saturated)
	}
	if r.Gateways != 2 || r.Tenants != 10 || r.RPCs == 0 || r.DecisionsPerSecond == 0 || r.Engines != "memory" {
		t.Errorf("got %+v", r)
	}
	if r.FirstLeases != 20 || r.TouchSeconds <= 0 {
		t.Errorf("first leases: %d in %v s, want 20 in some", r.FirstLeases, r.TouchSeconds)
	}
	// At random, of as few as a slow machine makes.
	if n, want := float64(r.DecisionNS.Samples), float64(r.Decisions)/1024; math.Abs(n-want) > want/4+4*math.Sqrt(want) {
		t.Errorf("timed %v of %d decisions, want one in 1,024; what is not measured is not to be timed", n, r.Decisions)
	}
	if !strings.Contains(out.String(), "decisions/s") {
		t.Errorf("no progress in\n%s", out.String())
	}
}

// Two paced runs against one server that runs already: what its ledger had before
// is not held against the second.
func TestLoadAgainstAGivenServer(t *testing.T) {
	s := embedded(t, 4)
	file := filepath.Join(t.TempDir(), "r.json")
	for i := range 2 {
		var out bytes.Buffer
		args := []string{"--server", s.Addr, "--apply", "--gateways", "2", "--tenants", "4", "--duration", "1s", "--rate", "2000", "--json", file}
		if err := run(t.Context(), args, &out, &out); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, out.String())
		}
		r := read(t, file)
		if r.Decisions > 2100 || r.Decisions < 100 { // fewer where the machine is busy
			t.Errorf("run %d: %d decisions at 2,000 a second for a second", i+1, r.Decisions)
		}
		if !r.LedgerEqual || r.Engines != "given" || r.Compared == nil || r.OfRedis != nil || r.ReportRowsPerSecond != nil {
			t.Errorf("run %d: got %+v", i+1, r)
		}
	}
}

// Two loads beside each other on one server: each finds its own tenants' units in the ledger, and says nothing of limits that are the server's own.
func TestLoadsBesideEachOther(t *testing.T) {
	s := embedded(t, 4)
	dir := t.TempDir()
	var group sync.WaitGroup
	for _, prefix := range []string{"a-", "b-"} {
		group.Go(func() {
			var out bytes.Buffer
			args := []string{"--server", s.Addr, "--metrics", s.HTTP, "--tenant-prefix", prefix, "--gateways", "2", "--tenants", "4", "--duration", "1s", "--rate", "2000", "--json", filepath.Join(dir, prefix)}
			if err := run(t.Context(), args, &out, &out); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
	group.Wait()
	for _, prefix := range []string{"a-", "b-"} {
		if r := read(t, filepath.Join(dir, prefix)); !r.LedgerEqual || r.Compared != nil || r.CPUSeconds["quota-server"] <= 0 {
			t.Errorf("%s: got %+v", prefix, r)
		}
	}
}

// A server that asks for keys is given two: agents may not read usage, and nobody else
// may settle it.
func TestLoadAgainstAServerWithKeys(t *testing.T) {
	s := embedded(t, 2)
	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	admin, err := quotav1.NewAdminServiceClient(conn).CreateKey(t.Context(), &quotav1.CreateKeyRequest{Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+admin.Secret)
	agent, err := quotav1.NewAdminServiceClient(conn).CreateKey(ctx, &quotav1.CreateKeyRequest{Role: "agent", Agent: "load-*"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"--server", s.Addr, "--key", agent.Secret, "--gateways", "1", "--tenants", "2", "--duration", "1s", "--rate", "500"}
	if err := run(t.Context(), append(args, "--admin-key", admin.Secret, "--apply"), &out, &out); err != nil {
		t.Errorf("with both keys: %v\n%s", err, out.String())
	}
	if err := run(t.Context(), args, &out, &out); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with the agents' key alone: got %v, want Unauthenticated", err)
	}
}

// A gateway that is told to end settles, and leaves a record that the ledger equals.
func TestGatewayLeavesARecord(t *testing.T) {
	s := embedded(t, 2)
	var c load.Config
	file := filepath.Join(t.TempDir(), "record")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var out bytes.Buffer
	args := []string{"gateway", "--server", s.Addr, "--agent", "g", "--demand", c.Tenant(0) + "=200," + c.Tenant(1) + "=100", "--record", file}
	if err := run(ctx, args, &out, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "up g\n") || !strings.Contains(out.String(), "closed g") {
		t.Errorf("got %q, want up and closed", out.String())
	}
	r, err := gateway.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	totals := r.Totals()
	if n := totals[c.Tenant(0)]; n < 20 || n > 500 {
		t.Errorf("200 a second for two seconds: %d admitted", n)
	}
	var check bytes.Buffer
	if err := run(t.Context(), []string{"gateway", "--demand", "x", "--record", file}, &check, &check); err == nil {
		t.Error("a demand without a rate: got no error")
	}
}

func TestFaultyFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--gateways", "0"}, {"--tenants", "-1"}, {"--duration", "0s"}, {"--rate", "-1"}, {"--distribution", "gauss"},
		{"--engines", "steam"}, {"--nonsense"}, {"extra"}, {"--workers", "-3"},
		{"--apply"}, {"--key", "k"}, {"--admin-key", "k"}, {"--server", "a:1", "--engines", "real"}, {"--server", "a:1", "--fold-interval", "1s"}, {"--fold-interval", "-1s"}, {"--json", "/nowhere/at/all/r.json"}, {"--json", os.TempDir()},
		{"--metrics", "a:1"}, {"--redis", "a:1"}, {"--postgres", "postgres://a"}, {"--burst", "1s"}, {"--tenant-prefix", "a b"}, {"--rate", "1000", "--saturated", "20", "--tenants", "4"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); !errors.Is(err, errUsage) || out.Len() == 0 {
			t.Errorf("%q: got %v and %q, want a fault and why", args, err, out.String())
		}
	}
	for _, arg := range []string{"--version", "--help"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{arg}, &out, &out); err != nil || out.Len() == 0 {
			t.Errorf("%s: got %v and %q", arg, err, out.String())
		}
	}
}

// A server that nobody runs is said within a reasonable time.
func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, []string{"--server", addr, "--tenants", "1"}, &out, &out); err == nil || ctx.Err() != nil {
		t.Errorf("got %v, context %v", err, ctx.Err())
	}
}
