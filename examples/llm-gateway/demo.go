package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/examples/llm-gateway/gateway"
	"github.com/f4ee788f/quota/examples/llm-gateway/upstream"
	bounded "github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
)

//go:embed policy.yaml
var policy string

const (
	callers = 8 // of each tenant, who ask one request after the other
	runFor  = 8 * time.Second
)

// tenants of the demo, and what each asks.
var tenants = []struct{ id, plan, model string }{{"ada", "free", "small"}, {"bell", "team", "large"}}

// meters are those of tokens, in the order of the table.
var meters = []string{"tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning"}

// demo runs all parts in this process.
func demo(ctx context.Context, out io.Writer) (err error) {
	server, err := stack.Embedded(ctx, policy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	conn, err := grpc.NewClient(server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	model := upstream.New(1, 5*time.Millisecond)
	modelAt, stopModel, err := listen(model)
	if err != nil {
		return err
	}
	defer stopModel()
	quota, err := client.Dial(ctx, server.Addr, client.WithAgent("llm-gateway"))
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, quota.Close(context.WithoutCancel(ctx)))
		}
	}()
	gatewayAt, stopGateway, err := listen(gateway.New(quota, modelAt, map[string]string{"key-ada": "ada", "key-bell": "bell"}))
	if err != nil {
		return err
	}
	defer stopGateway()
	fmt.Fprintf(out, "1. quota server on %s, a model on %s, the gateway on %s\n", server.Addr, modelAt.Host, gatewayAt.Host)
	fmt.Fprintf(out, "2. %d callers each of ada (free: 400 tokens/s, burst 2,000) and bell (team: five cents a month), for %v\n", callers, runFor)
	tallies, took := drive(ctx, gatewayAt)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintln(out, "3. the gateway closes; usage is settled into the ledger, and compared with what callers were told")
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	closed = true
	if err := quota.Close(settling); err != nil {
		return err
	}
	books := map[string]map[string]int64{}
	for _, meter := range append(meters, "microdollars") {
		if books[meter], err = stack.Usage(settling, conn, meter, []string{"ada", "bell"}); err != nil {
			return err
		}
	}
	return table(out, tallies, books, took)
}

// drive has all callers ask until the time is over.
func drive(ctx context.Context, gatewayAt *url.URL) (map[string]*tally, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, runFor)
	defer cancel()
	began := time.Now()
	tallies := map[string]*tally{}
	var all sync.WaitGroup
	for _, t := range tenants {
		n := &tally{}
		tallies[t.id] = n
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					if wait := n.ask(context.WithoutCancel(ctx), gatewayAt, "key-"+t.id, t.model); wait > 0 {
						select {
						case <-ctx.Done():
						case <-time.After(wait):
						}
					}
				}
			})
		}
	}
	all.Wait()
	return tallies, time.Since(began)
}

// table prints the comparison, and returns what is wrong.
func table(out io.Writer, tallies map[string]*tally, books map[string]map[string]int64, took time.Duration) error {
	var faults []error
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tenant\tplan\tanswered\tdenied\tended early\ttokens\tin\tcached\tout\treasoning\tledger tokens\tdollars\t")
	for _, t := range tenants {
		n := tallies[t.id]
		told := n.told()
		var all, ledger int64
		for i, meter := range meters {
			all, ledger = all+told[i], ledger+books[meter][t.id]
			if got := books[meter][t.id]; got != told[i] {
				faults = append(faults, fmt.Errorf("%s: the ledger has %d %s, callers were told of %d", t.id, got, meter, told[i]))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.4f\t\n", t.id, t.plan, n.answered, n.denied, n.early, all,
			told[0], told[1], told[2], told[3], ledger, float64(books["microdollars"][t.id])/1e6)
		if n.failed > 0 {
			faults = append(faults, fmt.Errorf("%s: %d requests failed", t.id, n.failed))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	ada, most := tallies["ada"].tokens(), 1.05*(2000+400*took.Seconds())
	fmt.Fprintf(out, "\nada had %d tokens of at most %.0f in %.1f s; bell spent %.1f %% of five cents.\n", ada, most, took.Seconds(),
		float64(books["microdollars"]["bell"])/500)
	if float64(ada) > most {
		faults = append(faults, errors.New("ada had more tokens than its limit lets through"))
	}
	if spent := books["microdollars"]["bell"]; spent > 52_500 || spent < 45_000 {
		faults = append(faults, fmt.Errorf("bell spent %d millionths of 50,000", spent))
	}
	return errors.Join(faults...)
}

// listen serves h on a port of this machine until stop is called.
func listen(h http.Handler) (at *url.URL, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	s := bounded.HTTP(h)
	go func() { _ = s.Serve(l) }()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}, func() { _ = s.Close() }, nil
}
