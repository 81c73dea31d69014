package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

// docs/sdk.md leads to this function.

// gateway limits what reaches upstream. On SIGTERM, or when its terminal closes, it answers what is under way, and settles what it admitted.
func gateway(addr, quotaServer string, upstream *url.URL) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	quota, err := client.Dial(ctx, quotaServer, client.WithAgent("edge-1"))
	if err != nil {
		return err
	}
	limited := httpquota.Middleware(quota)(httputil.NewSingleHostReverseProxy(upstream)) // 429 with Retry-After and RateLimit headers
	server := &http.Server{Addr: addr, Handler: limited, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		drain, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = server.Shutdown(drain)
	}
	return errors.Join(err, quota.Close(context.Background())) // gives leases back and settles, within 10 s
}
