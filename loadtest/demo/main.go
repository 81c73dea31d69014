// Command demo shows the whole path in half a minute on one machine, without installing anything. It runs a quota
// server with memory leases and a SQLite ledger, an upstream, and a reverse proxy with the SDK's middleware before it.
// Three tenants on three plans send requests over HTTP, and one of them changes its plan in the middle. It ends with
// "demo: ok" only if the ledger has, for every tenant, exactly what the upstream served.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Printf("demo: FAILED: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("demo: ok")
}

// errDiffers means that the ledger is not what the upstream served.
var errDiffers = errors.New("the ledger differs from what the upstream served")

func run(ctx context.Context, out io.Writer) (err error) {
	step := 0
	say := func(format string, args ...any) {
		step++
		fmt.Fprintf(out, "%d. "+format+"\n", append([]any{step}, args...)...)
	}
	closing := func(what string, end func() error) {
		if e := end(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", what, e))
		}
	}

	server, err := stack.Embedded(ctx, policy)
	if err != nil {
		return err
	}
	defer closing("server", server.Stop)
	say("quota server on %s: leases in memory, ledger in SQLite, plans free, paid and enterprise", server.Addr)

	conn, err := grpc.NewClient(server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer closing("connection", conn.Close)

	witness := newApp()
	appAt, stopApp, err := listen(witness)
	if err != nil {
		return err
	}
	defer closing("upstream", stopApp)
	say("upstream on %s: counts what reaches it, which is what was really admitted", appAt.Host)

	quota, err := client.Dial(ctx, server.Addr, client.WithAgent("demo-gateway"))
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			closing("client", func() error { return quota.Close(context.WithoutCancel(ctx)) })
		}
	}()
	gatewayAt, stopGateway, err := listen(newGateway(quota, appAt))
	if err != nil {
		return err
	}
	defer closing("gateway", stopGateway)
	say("gateway on %s: a reverse proxy with the SDK in it, so that no request asks the server", gatewayAt.Host)

	tallies := make(map[string]*tally)
	for _, t := range tenants {
		tallies[t.id] = new(tally)
	}
	say("three tenants send %d requests a second each, for %v", perTenant, half)
	if drive(ctx, gatewayAt, tallies); ctx.Err() != nil {
		return ctx.Err()
	}
	for _, t := range tenants {
		n := tallies[t.id]
		fmt.Fprintf(out, "     %-6s %-10s allowed %4d, denied %4d\n", t.id, t.plan, n.allowed.Load(), n.denied.Load())
	}
	if _, err := quotav1.NewAdminServiceClient(conn).SetTenantPlan(ctx, &quotav1.SetTenantPlanRequest{Id: changed.id, Plan: changed.plan}); err != nil {
		return fmt.Errorf("change the plan: %w", err)
	}
	say("%s buys the plan %s (as `quotactl tenant set-plan %s %s` would), and all go on for %v", changed.id, changed.plan, changed.id, changed.plan, half)
	if drive(ctx, gatewayAt, tallies); ctx.Err() != nil {
		return ctx.Err()
	}

	say("the gateway closes: leases go back, usage is settled into the ledger")
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	closed = true
	if err := quota.Close(settling); err != nil {
		return err
	}
	units, err := stack.Usage(settling, conn, meter, names())
	if err != nil {
		return err
	}
	say("the ledger is read and compared with the upstream's own count")
	return table(out, tallies, witness, units, quota.Stats())
}

// table prints the comparison and returns what is wrong with it.
func table(out io.Writer, tallies map[string]*tally, witness *app, units map[string]int64, s client.Stats) error {
	var faults []error
	var sent, allowed, denied, ledger int64
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tenant\tplan\tsent\tallowed\tdenied\tcalls to the server\tledger units\t")
	for _, t := range tenants {
		n, served, plan := tallies[t.id], witness.served[t.id].Load(), t.plan
		if t.id == changed.id {
			plan += " → " + changed.plan
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t\t%d\t\n", t.id, plan, n.sent.Load(), served, n.denied.Load(), units[t.id])
		sent, allowed, denied, ledger = sent+n.sent.Load(), allowed+served, denied+n.denied.Load(), ledger+units[t.id]
		if units[t.id] != served {
			faults = append(faults, fmt.Errorf("%w: %s: ledger %d, served %d", errDiffers, t.id, units[t.id], served))
		}
		if n.allowed.Load() != served || n.other.Load() != 0 || n.sent.Load() != served+n.denied.Load() {
			faults = append(faults, fmt.Errorf("%s: sent %d, answered 200 %d times, 429 %d times, otherwise %d times; served %d",
				t.id, n.sent.Load(), n.allowed.Load(), n.denied.Load(), n.other.Load(), served))
		}
	}
	calls := s.RenewCalls + s.SettleCalls
	fmt.Fprintf(w, "all\t\t%d\t%d\t%d\t%d\t%d\t\n", sent, allowed, denied, calls, ledger)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d decisions with %d calls to the server, %.1f %% of them.\n", sent, calls, 100*float64(calls)/float64(max(sent, 1)))
	if free := tallies[tenants[0].id]; free.denied.Load() == 0 {
		faults = append(faults, fmt.Errorf("%s was never denied, though it asked for far more than its plan", tenants[0].id))
	}
	if n := units[stack.Others]; n != 0 {
		faults = append(faults, fmt.Errorf("%w: it has %d units of tenants that nobody sent", errDiffers, n))
	}
	return errors.Join(faults...)
}
