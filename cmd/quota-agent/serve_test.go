package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/f4ee788f/quota/internal/doors"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fetch(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	asker := unixClient(socket)
	defer asker.CloseIdleConnections()
	answer, err := asker.Get("http://agent" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// A check is answered at once though its body never comes, on the path as it was sent, and not by a redirect.
func TestChecksWaitForNoBodyAndRedirectNobody(t *testing.T) {
	server := startServer(t)
	socket := filepath.Join(t.TempDir(), "s")
	startAgent(t, "--server", server.GRPCAddr(), "--http-addr", "unix:"+socket, "--grpc-addr", "", "--agent-id", "bodies")
	waitReady(t, socket)
	for _, request := range []string{
		"POST /check HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nContent-Length: 5\r\n\r\n",
		"POST /check HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET /check//login HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\n\r\n",
		"GET /check/x/../login HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\n\r\n",
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%q: %v", request, err)
		} else {
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%q: got %d, want 200", request, answer.StatusCode)
			}
			answer.Body.Close()
		}
		conn.Close()
	}
}

// An agent that is told to stop before it serves has not failed.
func TestStoppedBeforeItServes(t *testing.T) {
	m, err := doors.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "g"))
		if err != nil {
			t.Fatal(err)
		}
		if err := serveGRPC(ctx, l, doors.NewEnvoy(nil, m, slog.New(slog.DiscardHandler)), doors.NewKuadrant(nil, nil), doors.NewDecide(nil, nil, m)); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent is ready once it knows a policy, and stays so out of contact. Its stats say both.
func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		stats  client.Stats
		ready  bool
		reason string
	}{
		{client.Stats{}, false, "no policy is known"},
		{client.Stats{Lost: true}, false, "no policy is known"},
		{client.Stats{PolicyVersion: 1}, true, ""},
		{client.Stats{PolicyVersion: 1, Lost: true}, true, "out of contact"},
	} {
		if ready, reason := readiness(c.stats); ready != c.ready || !strings.Contains(reason, c.reason) {
			t.Errorf("%+v: got %v %q, want %v %q", c.stats, ready, reason, c.ready, c.reason)
		}
	}
}

// Envoy asks over a Unix socket; what was admitted is settled by the agent's end.
func TestAgentServesEnvoyAndSettles(t *testing.T) {
	server := startServer(t)
	dir := t.TempDir()
	httpSocket, grpcSocket := filepath.Join(dir, "h"), filepath.Join(dir, "g")
	end := startAgent(t, "--server", server.GRPCAddr(), "--http-addr", "unix:"+httpSocket, "--grpc-addr", "unix:"+grpcSocket)
	waitReady(t, httpSocket)

	conn, err := grpc.NewClient("unix:"+grpcSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "envoy.service.ratelimit.v3.RateLimitService"})
	if err != nil || h.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health: got %v, %v", h, err)
	}
	request := &rls.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "tenant", Value: "acme"}}},
	}}
	admitted := int64(0)
	for range 8 {
		answer := new(rls.RateLimitResponse)
		if err := conn.Invoke(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", request, answer); err != nil {
			t.Fatal(err)
		}
		if answer.GetOverallCode() == rls.RateLimitResponse_OK {
			admitted += 3
		}
	}
	if admitted != 18 {
		t.Errorf("8 times 3 of a burst of 20: admitted %d, want 18", admitted)
	}
	if code, body := fetch(t, httpSocket, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: got %d %s", code, body)
	}
	_, metrics := fetch(t, httpSocket, "/metrics")
	for _, want := range []string{
		`quota_agent_answers_total{door="envoy",result="ok"} 6`, `quota_agent_answers_total{door="envoy",result="over_limit"} 2`,
		"quota_client_billed_units_total 18", "quota_client_policy_version", "quota_client_lost 0",
		`quota_client_late_spent_units_total{limit="requests"} 0`, `quota_client_outage_units_total{limit="requests"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics: no %q", want)
		}
	}
	end()
	if got := usage(t, server)["acme"]; got != admitted {
		t.Errorf("ledger: got %d, want %d", got, admitted)
	}
}

// A thin client shares the address with Envoy; the agent ends while its line is open, and settles what it was asked.
func TestAgentServesThinClients(t *testing.T) {
	server := startServer(t)
	dir := t.TempDir()
	httpSocket, grpcSocket := filepath.Join(dir, "h"), filepath.Join(dir, "g")
	end := startAgent(t, "--server", server.GRPCAddr(), "--http-addr", "unix:"+httpSocket, "--grpc-addr", "unix:"+grpcSocket)
	waitReady(t, httpSocket)
	thin, err := agentclient.Dial(t.Context(), "unix://"+grpcSocket, agentclient.WithFirstWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := thin.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	admitted := int64(0)
	for range 8 {
		d := thin.AllowN(t.Context(), 3, client.Tenant("acme"))
		if d.Reason != client.ReasonLimit || d.Limit() != "requests" {
			t.Errorf("got %+v of %q", d, d.Limit())
		}
		if d.Allowed {
			admitted += 3
		}
	}
	if admitted != 18 {
		t.Errorf("8 times 3 of a burst of 20: admitted %d, want 18", admitted)
	}
	if _, metrics := fetch(t, httpSocket, "/metrics"); !strings.Contains(metrics, "quota_agent_streams 1") {
		t.Error("/metrics: no stream")
	}
	end()
	if got := usage(t, server)["acme"]; got != admitted {
		t.Errorf("ledger: got %d, want %d", got, admitted)
	}
}

// Without a server the agent lives, says that it is not ready, and why.
func TestAgentWithoutAServerIsNotReady(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "h")
	startAgent(t, "--server", "127.0.0.1:1", "--http-addr", "unix:"+socket, "--grpc-addr", "", "--close-wait", "2s")
	asker := unixClient(socket)
	defer asker.CloseIdleConnections()
	up := func() bool {
		answer, err := asker.Get("http://agent/healthz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	if !wait(t, time.Minute, nil, up) {
		t.Fatal("the agent does not come up")
	}
	if code, body := fetch(t, socket, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no policy is known") {
		t.Errorf("/readyz: got %d %s", code, body)
	}
	if code, _ := fetch(t, socket, "/check"); code != http.StatusServiceUnavailable {
		t.Errorf("/check: got %d, want 503", code)
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"--version"}, 0, "quota-agent "},
		{[]string{"--help"}, 0, "--attribute"},
		{[]string{"--nonsense"}, 2, "nonsense"},
		{[]string{"--http-addr", "x"}, 2, "--http-addr"},
		{[]string{"--tls-ca", "/does/not/exist"}, 1, "--tls-ca"},
		{[]string{"--http-addr", "unix:/does/not/exist/s", "--grpc-addr", ""}, 1, "/does/not/exist/s"},
	} {
		var out bytes.Buffer
		if got := run(test.args, &out, &out); got != test.code || !strings.Contains(out.String(), test.said) {
			t.Errorf("%q: got %d, want %d and %q in\n%s", test.args, got, test.code, test.said, out.String())
		}
	}
}
