package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/server/boot"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const document = `
gateways:
  envoy: {domain: edge, descriptors: {tenant: tenant}}
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 20/hour, burst: 20, meter: requests, deny: {tenant: barred}}
tenants:
  - {id: acme, plan: free}
  - {id: other, plan: free}
  - {id: barred, plan: free}
`

// nginxConf is what the recipe of docs/doors.md stands in, of a server that needs no rights.
const nginxConf = `
daemon off; master_process off; worker_processes 1;
pid DIR/nginx.pid; error_log stderr notice;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
RECIPE
}
`

// recipe is docs/doors.md's for nginx, with this test's addresses; each of its words stands there once.
func recipe(t *testing.T, addresses ...string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/doors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "\n### nginx\n")
	_, text, _ = strings.Cut(text, "\n```nginx\n")
	text, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("docs/doors.md has no recipe for nginx")
	}
	for i := 0; i < len(addresses); i += 2 {
		if strings.Count(text, addresses[i]) != 1 {
			t.Fatalf("docs/doors.md: the recipe for nginx has not one %q", addresses[i])
		}
		text = strings.Replace(text, addresses[i], addresses[i+1], 1)
	}
	return text
}

// nginx from Debian asks a quota-agent over a Unix socket, in front of a real upstream.
// What the upstream served is what the ledger has once the agent has ended.
func TestNginxAsksTheAgent(t *testing.T) {
	program := findNginx(t)
	server := startServer(t)
	var served atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		io.Copy(w, r.Body)
	}))
	defer upstream.Close()

	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	if len(socket) > 100 { // a socket's path is short by law
		t.Fatalf("TMPDIR is too long for a socket: %s", socket)
	}
	endAgent := startAgent(t, "--server", server.GRPCAddr(), "--http-addr", "unix:"+socket, "--grpc-addr", "", "--agent-id", "sidecar", "--cost-header", "X-Cost", "--unknown-tenant", "401")
	waitReady(t, socket)
	gateway := startNginx(t, program, dir, strings.NewReplacer(
		"DIR", dir, "RECIPE", recipe(t, "unix:/run/quota/http.sock", "unix:"+socket, "server {", "server {\n    listen LISTEN;", "http://app;", "http://"+upstream.Listener.Addr().String()+";"),
	).Replace(nginxConf))

	get := func(tenant, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+gateway+"/hello?x=1", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Tenant", tenant)
		// What a client may not say is not heard.
		for name, lie := range map[string]string{
			"X-Cost": "0", "X-Original-Host": "internal", "X-Original-Uri": "/free", "X-Original-Method": "OPTIONS", "X-Real-Ip": "10.0.0.1",
			"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Uri": "/free", "X-Forwarded-Host": "internal",
		} {
			r.Header.Set(name, lie)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode == http.StatusOK && string(b) != body {
			t.Errorf("the upstream's answer: got %q, want %q", b, body)
		}
		return answer
	}
	for i := range 20 {
		answer := get("acme", "payload")
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("request %d of a burst of 20: got %d", i+1, answer.StatusCode)
		}
		if h := answer.Header.Get("RateLimit"); !strings.HasPrefix(h, `"requests";r=`) {
			t.Errorf("request %d: RateLimit: got %q", i+1, h)
		}
	}
	for range 5 {
		answer := get("acme", "payload")
		if answer.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("beyond the burst: got %d, want 429", answer.StatusCode)
		}
		if answer.Header.Get("Retry-After") == "" || answer.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("a denial through nginx lacks headers: %v", answer.Header)
		}
	}
	if answer := get("", ""); answer.StatusCode != http.StatusBadRequest || answer.Header.Get("Retry-After") != "" {
		t.Errorf("without a tenant: got %d, Retry-After %q, want 400 and none", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
	if answer := get("nobody", ""); answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("Retry-After") != "" {
		t.Errorf("an unknown tenant: got %d, Retry-After %q, want 401 and none", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
	if answer := get("barred", ""); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a tenant that the limit denies: got %d, want 403", answer.StatusCode)
	}
	if answer := get("other", ""); answer.StatusCode != http.StatusOK {
		t.Errorf("another tenant: got %d", answer.StatusCode)
	}
	if got := served.Load(); got != 21 {
		t.Errorf("the upstream served %d, want 21", got)
	}

	endAgent()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	units := usage(t, server)
	if units["acme"] != 20 || units["other"] != 1 || units[""] != 21 {
		t.Errorf("ledger: got %v, want 20 of acme, 1 of other, 21 in all", units)
	}
}

func findNginx(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const say = "nginx is neither in PATH nor in /usr/sbin"
	if os.Getenv("CI") != "" || os.Getenv("QUOTA_TEST_REQUIRE") != "" {
		t.Fatal(say)
	}
	t.Skip("SKIPPED: " + say + " (CI=true or QUOTA_TEST_REQUIRE=1 makes this a failure)")
	return ""
}

// startNginx returns the address that nginx listens on.
func startNginx(t *testing.T, program, dir, conf string) string {
	t.Helper()
	for attempt := 0; ; attempt++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close() // nginx takes it, unless somebody else is faster: then another one
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(strings.Replace(conf, "LISTEN", addr, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		log := new(bytes.Buffer)
		cmd := exec.Command(program, "-p", dir, "-c", file)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // said by its log
			close(ended)
		}()
		up := func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
			}
			return err == nil
		}
		if wait(t, time.Minute, ended, up) {
			t.Cleanup(func() {
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Errorf("nginx: %v", err)
				}
				<-ended
				if t.Failed() {
					t.Logf("nginx said:\n%s", log)
				}
			})
			return addr
		}
		_ = cmd.Process.Kill()
		<-ended
		if attempt == 3 {
			t.Fatalf("nginx does not come up:\n%s", log)
		}
	}
}

// wait reports whether ok came true before ended or too long.
func wait(t *testing.T, within time.Duration, ended <-chan struct{}, ok func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

func startServer(t *testing.T) *boot.Server { return startServerWith(t, document) }

func startServerWith(t *testing.T, document string) *boot.Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	c := boot.Embedded(dir, file)
	c.Log = slog.New(slog.DiscardHandler)
	s, err := boot.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

// startAgent runs the agent as main would, and returns how to end it as SIGTERM does.
func startAgent(t *testing.T, args ...string) (end func()) {
	t.Helper()
	c, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	log := new(bytes.Buffer)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, c, slog.New(slog.NewTextHandler(log, nil))) }()
	over := false
	end = func() {
		t.Helper()
		if over {
			return
		}
		over = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("agent: %v\n%s", err, log)
		}
	}
	t.Cleanup(end)
	return end
}

// waitReady waits for the agent's own word.
func waitReady(t *testing.T, socket string) {
	t.Helper()
	asker := unixClient(socket)
	defer asker.CloseIdleConnections()
	ready := func() bool {
		answer, err := asker.Get("http://agent/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	if !wait(t, time.Minute, nil, ready) {
		t.Fatal("the agent is not ready")
	}
}

func unixClient(socket string) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// usage is what the ledger has, by tenant; of all under the empty one.
func usage(t *testing.T, s *boot.Server) map[string]int64 {
	t.Helper()
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	units := make(map[string]int64)
	for _, tenant := range []string{"acme", "other", ""} {
		answer, err := quotav1.NewUsageServiceClient(conn).GetUsage(t.Context(), &quotav1.GetUsageRequest{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range answer.GetRows() {
			units[tenant] += r.GetAdmitted()
		}
	}
	return units
}
