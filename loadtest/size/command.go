package size

import (
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/pkg/client"
)

// Command is `loadtest size`: it prints what the load of its flags needs. A load that makes no sense wraps ErrLoad.
func Command(args []string, stdout, stderr io.Writer) error {
	var l Load
	f := flag.NewFlagSet("loadtest size", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Float64Var(&l.Rate, "rate", 5_000_000, "requests a second")
	f.IntVar(&l.Gateways, "gateways", 100, "gateways, each with leases of its own")
	f.IntVar(&l.Spread, "spread", 0, "gateways that one tenant's requests come to; 0 for all")
	f.IntVar(&l.Tenants, "tenants", 10_000, "tenants in use")
	f.IntVar(&l.Limits, "limits", 1, "limits that a request meets")
	f.IntVar(&l.Keys, "keys", 1, "ledger keys of a tenant: of the limits that name a meter, one for each combination of values that they count by")
	f.Float64Var(&l.Saturated, "saturated", 20, "percent of the tenants that ask for more than their limit")
	f.Float64Var(&l.Beyond, "beyond", 2, "how many times their limit these ask for")
	f.Float64Var(&l.Near, "near", 1, "percent of the tenants that ask for about as much as their limit, which is what renewals are dearest for")
	f.DurationVar(&l.Burst, "burst", 2*time.Minute, "how long a limit's burst lasts at its rate; plans of 100/hour and a burst of 200 have 2h")
	f.Float64Var(&l.Zipf, "zipf", 1.1, "exponent of how requests spread over tenants; 0 for evenly")
	f.DurationVar(&l.Report, "report-interval", client.DefaultReportInterval, "of the gateways")
	f.DurationVar(&l.Fold, "fold-interval", ledger.DefaultFoldEvery, "of each server: how often it folds reports into the ledger")
	f.IntVar(&l.Servers, "servers", 2, "quota-servers, each of which folds")
	f.DurationVar(&l.RoundTrip, "round-trip", 2*time.Millisecond, "of a call from a gateway to a server")
	f.Float64Var(&l.Busy, "busy", 0.6, "part of a processor that is to be in use")
	f.Float64Var(&l.Core, "core", 0.04, "money for a processor and hour: yours")
	f.Float64Var(&l.GiBMonth, "gib", 0.12, "money for a GiB of disk and month: yours")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%w: unexpected argument %q", ErrLoad, f.Arg(0))
	}
	if err := l.Validate(); err != nil {
		return err
	}
	return Write(stdout, l, Of(l))
}
