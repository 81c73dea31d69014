package boot_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/internal/testenv"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testenv.Wrap(m), testenv.Redialing())
}

const policyText = `
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 100/hour, burst: 200, meter: requests}
  paid:
    limits:
      - {name: requests, by: [tenant], rate: 1000/hour, burst: 2000, meter: requests}
default_plan: free
tenants:
  - {id: acme, plan: paid}
`

// node is a server that runs for a test.
type node struct {
	*boot.Server
	t    testing.TB
	key  string // sent with every call, unless empty
	stop func() error
}

// start runs a server until the test, or stop, ends it.
func start(t testing.TB, c boot.Config) *node {
	t.Helper()
	if c.GRPCAddr == "" {
		c.GRPCAddr, c.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := boot.New(t.Context(), c)
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	n := &node{Server: s, t: t, key: c.BootstrapAdminKey}
	n.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return n
}

// testLog writes a server's log to the test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// embedded is a server with its files in the test's directory.
func embedded(t testing.TB, policy string) boot.Config {
	t.Helper()
	return boot.Embedded(t.TempDir(), file(t, policy))
}

func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quota.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type token string

func (k token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(k)}, nil
}

func (token) RequireTransportSecurity() bool { return false }

// dial connects with a key; empty for none.
func (n *node) dial(key string) *grpc.ClientConn {
	n.t.Helper()
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if key != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(key)))
	}
	conn, err := grpc.NewClient(n.GRPCAddr(), options...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

func (n *node) admin() quotav1.AdminServiceClient {
	n.t.Helper()
	return quotav1.NewAdminServiceClient(n.dial(n.key))
}

func (n *node) usage() quotav1.UsageServiceClient {
	n.t.Helper()
	return quotav1.NewUsageServiceClient(n.dial(n.key))
}

func (n *node) leases() quotav1.LeaseServiceClient {
	n.t.Helper()
	return quotav1.NewLeaseServiceClient(n.dial(n.key))
}

// apply makes a policy the next version.
func (n *node) apply(text string) int64 {
	n.t.Helper()
	resp, err := n.admin().ApplyPolicy(n.t.Context(), &quotav1.ApplyPolicyRequest{Document: text, File: "quota.yaml"})
	if err != nil {
		n.t.Fatalf("apply: %v", err)
	}
	return resp.Change.Version
}

// get returns a page's code and body.
func (n *node) get(path string) (int, string) {
	n.t.Helper()
	return n.call("GET", path, n.key, "")
}

func (n *node) call(method, path, key, body string) (int, string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// reasons is what readiness says, by part.
func (n *node) reasons() map[string]string {
	n.t.Helper()
	code, body := n.get("/readyz")
	var answer struct {
		Ready   bool
		Reasons []struct{ Part, Reason string }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		n.t.Fatalf("/readyz is no JSON: %v: %s", err, body)
	}
	if answer.Ready != (code == http.StatusOK) || answer.Ready != (len(answer.Reasons) == 0) {
		n.t.Fatalf("/readyz contradicts itself: %d %s", code, body)
	}
	reasons := map[string]string{}
	for _, r := range answer.Reasons {
		reasons[r.Part] = r.Reason
	}
	return reasons
}

// waitReady waits until every part works.
func (n *node) waitReady() {
	n.t.Helper()
	var reasons map[string]string
	eventually(n.t, "the server is ready", func() bool {
		reasons = n.reasons()
		return len(reasons) == 0
	}, func() any { return reasons })
}

// patience is how long these tests wait for what must come. It says nothing of how fast a server is: here are real
// processes and disks, on a machine that may be doing anything else. The promises of a second are
// held where time is virtual, in internal/server.
const patience = 2 * time.Minute // an agent asks again about a quota that is used up after one

// eventually waits for a condition. now, if there is one, says how things stand at the end.
func eventually(t testing.TB, what string, condition func() bool, now ...func() any) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			for _, f := range now {
				t.Logf("at the end: %v", f())
			}
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
