package doors

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/pkg/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// document refills so slowly that a test sees the burst and nothing else.
const document = `
gateways:
  envoy: {domain: edge, descriptors: {remote_address: ip, path: endpoint, verb: method, "header:x-tenant": tenant}}
limits:
  - {name: login, match: {endpoint: "POST /login"}, by: [ip], rate: 3/hour, burst: 3}
default_plan: free
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 10/hour, burst: 10, meter: requests}
  monthly:
    limits:
      - {name: odd, by: [tenant], algorithm: fixed_window, rate: 7/90s, meter: requests}
tenants:
  - {id: acme, plan: free}
  - {id: odd, plan: monthly}
`

// startServer runs an embedded server under the document, or another one.
func startServer(t testing.TB, document string) *boot.Server {
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

// dial returns a client of an embedded server under the document.
func dial(t *testing.T) *client.Client {
	t.Helper()
	return dialAt(t, startServer(t, document).GRPCAddr(), client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second))
}

func dialAt(t testing.TB, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), addr, append([]client.Option{client.WithCloseWait(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func newMetrics(t testing.TB) *Metrics {
	t.Helper()
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}
