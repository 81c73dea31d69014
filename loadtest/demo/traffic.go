package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	bounded "github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

const (
	perTenant = 240 // requests a second that each tenant sends, on whatever plan
	callers   = 4   // connections of each tenant
)

// app is the upstream. It counts the requests that reach it, by tenant, as a witness outside the SDK of what was
// admitted.
type app struct{ served map[string]*atomic.Int64 }

func newApp() *app {
	a := &app{served: make(map[string]*atomic.Int64)}
	for _, t := range tenants {
		a.served[t.id] = new(atomic.Int64)
	}
	return a
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n := a.served[r.Header.Get("X-Tenant")]; n != nil {
		n.Add(1)
	}
	fmt.Fprintln(w, "hello")
}

// newGateway is all that a gateway needs: a reverse proxy with the middleware before it.
func newGateway(quota *client.Client, upstream *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}
	return httpquota.Middleware(quota)(proxy)
}

// listen serves h on a loopback port until stop is called.
func listen(h http.Handler) (at *url.URL, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	s := bounded.HTTP(h)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	stop = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := s.Shutdown(ctx)
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}
	return &url.URL{Scheme: "http", Host: l.Addr().String()}, stop, nil
}

// tally counts the answers to a tenant's callers.
type tally struct{ sent, allowed, denied, other atomic.Int64 }

// half is how long the traffic flows before and after the change of plan.
const half = 4 * time.Second

// drive sends every tenant's requests to the gateway for one half, and returns when
// the last is answered.
func drive(ctx context.Context, gateway *url.URL, tallies map[string]*tally) {
	ctx, cancel := context.WithTimeout(ctx, half)
	defer cancel()
	transport := &http.Transport{MaxIdleConnsPerHost: callers * len(tenants)}
	defer transport.CloseIdleConnections()
	caller := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	var group sync.WaitGroup
	for _, t := range tenants {
		for range callers {
			group.Go(func() { call(ctx, caller, gateway, t.id, tallies[t.id]) })
		}
	}
	group.Wait()
}

func call(ctx context.Context, caller *http.Client, gateway *url.URL, tenant string, n *tally) {
	tick := time.NewTicker(time.Second * callers / perTenant)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The end of the demo cuts no request short, because nobody would know its outcome.
		r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, gateway.String()+"/hello", nil)
		if err != nil {
			n.other.Add(1)
			continue
		}
		r.Header.Set("X-Tenant", tenant)
		n.sent.Add(1)
		answer, err := caller.Do(r)
		if err != nil {
			n.other.Add(1)
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body) // so that the connection can be used again
		answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusOK:
			n.allowed.Add(1)
		case http.StatusTooManyRequests:
			n.denied.Add(1)
		default:
			n.other.Add(1)
		}
	}
}
