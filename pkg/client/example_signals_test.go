//go:build unix

package client_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// The gateway that docs/sdk.md leads to loses none of what it admitted, told to stop by SIGTERM, or when its terminal is closed.
func TestExampleGatewaySettlesOnSignals(t *testing.T) {
	// One that the gateway does not take ends this process: here it fails the test.
	others := make(chan os.Signal, 1)
	signal.Notify(others, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(others)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) { gatewaySettles(t, s) })
	}
}

func gatewaySettles(t *testing.T, s syscall.Signal) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
	defer app.Close()
	upstream, err := url.Parse(app.URL)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	before := client.Billed("wayne")
	ended := make(chan error, 1)
	go func() { ended <- gateway(addr, client.ExampleServer, upstream) }()
	asker := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	var served int64
	for stop := time.Now().Add(time.Minute); served == 0; {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Tenant", "wayne")
		answer, err := asker.Do(request)
		if err != nil {
			if time.Now().After(stop) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // it does not listen yet
			continue
		}
		if answer.Body.Close(); answer.StatusCode == http.StatusOK {
			served++
		}
	}
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the gateway does not take %v: it would have killed it", s)
	}
	if got := client.Billed("wayne") - before; got != served {
		t.Errorf("the ledger has %d units, %d were served", got, served)
	}
}
