// Command llm-gateway is a gateway for language models with quotas in requests, tokens and money. Without flags it is a
// demo that needs nothing else. It runs a quota server, a model that is none, the gateway, and two tenants that ask for
// more than they may. It ends with "demo-llm: ok" only if the ledger has every token that callers were told of.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/f4ee788f/quota/examples/llm-gateway/gateway"
	bounded "github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
)

func main() {
	upstream := flag.String("upstream", "", "`URL` of an OpenAI-compatible server; without it, the demo")
	server := flag.String("server", "127.0.0.1:7600", "quota servers' `HOST:PORT`, separated by commas")
	keys := flag.String("keys", "", "JSON `FILE`: the tenant of each API key")
	addr := flag.String("listen", "127.0.0.1:8080", "`HOST:PORT` to serve")
	journal := flag.String("journal", "", "`DIR` that outlives the process: a kill loses no tokens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *upstream == "" {
		if err := demo(ctx, os.Stdout); err != nil {
			fmt.Println("demo-llm: FAILED:", err)
			os.Exit(1)
		}
		fmt.Println("demo-llm: ok")
		return
	}
	if err := serve(ctx, *upstream, *server, *keys, *addr, *journal); err != nil {
		fmt.Fprintln(os.Stderr, "llm-gateway:", err)
		os.Exit(1)
	}
}

// serve runs the gateway until ctx ends.
func serve(ctx context.Context, upstream, server, keys, addr, journal string) (err error) {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(keys)
	if err != nil {
		return err
	}
	var tenants map[string]string
	if err := json.Unmarshal(text, &tenants); err != nil {
		return fmt.Errorf("%s: %w", keys, err)
	}
	options := []client.Option{client.WithKey(os.Getenv("QUOTA_KEY")), client.WithReservationTime(10 * time.Minute)}
	if journal != "" {
		options = append(options, client.WithJournal(journal))
	}
	quota, err := client.Dial(ctx, server, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, quota.Close(context.WithoutCancel(ctx))) }()
	s := bounded.HTTP(gateway.New(quota, to, tenants))
	s.Addr = addr
	ended := make(chan error, 1)
	go func() { ended <- s.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return s.Shutdown(closing) // streams under way come to their end
}
