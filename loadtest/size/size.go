// Package size says what a load needs: servers, Redis shards, Postgres, memory in the gateways, and what that
// costs. docs/sizing.md has the formulas, and where each constant was measured.
package size

import (
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Load is what is to be served.
type Load struct {
	Rate      float64       // requests a second
	Gateways  int           // each with leases of its own
	Tenants   int           // that are in use
	Limits    int           // that a request meets, each with a bucket for each tenant
	Saturated float64       // the part of the tenants that ask for more than their limit, 0 to 1
	Beyond    float64       // how many times their limit these ask for
	Zipf      float64       // exponent of how requests spread over tenants; 0 for evenly
	Report    time.Duration // between two reports of a gateway
	Busy      float64       // the part of a processor that is to be in use, 0 to 1
	Core      float64       // money for a processor and hour
	GiBMonth  float64       // money for a GiB of disk and month
}

// Constants of a decision, a renewal and a report row, in seconds of a processor, and of what is kept, in bytes.
// docs/sizing.md says how each was measured.
const (
	decisionCPU = 110e-9 // a limit's, by attributes
	stepCPU     = 25e-6  // Redis, a renewal of a bucket
	replicaCPU  = 8e-6   // a replica's part of it; not measured alone
	serverCPU   = 16e-6  // quota-server, a renewal
	callCPU     = 150e-6 // quota-server, a call
	agentCPU    = 15e-6  // the gateway, a renewal
	rowCPU      = 1.5e-6 // Postgres, a report row
	rowServer   = 0.9e-6 // quota-server, a report row
	bucketBytes = 142 + 201
	entryBytes  = 200 // of Postgres: an entry with its indexes
	rowBytes    = 7.3 // of Postgres: a report row
	recordBytes = 450 // of Redis: a holder's record
	stateBytes  = 1200

	term      = 10.0 // seconds, of leases that are used too little for longer ones
	longTerm  = 95.0 // of leases while nothing presses: two minutes, less what renewals are ahead of them and what terms take to grow
	known     = 0.2  // units a second from which on demand is known
	worth     = 0.1  // and a share is leased as a trickle
	units     = 32.0 // that a lease of a scarce bucket lasts for, for as long as
	minScarce = 1.0  // seconds at the least
	maxScarce = 10.0 // and at the most
	early     = 1.5  // renewals of a scarce bucket for each that its terms ask for: 1.3 to 2.3 in the simulation
	slotsHour = 12   // usage slots
	calls     = 10.0 // calls of a gateway a second that renewals of long leases make at most
	waitCalls = 1000 // and those that requests wait for: one a millisecond
)

// Need is what a load needs.
type Need struct {
	Buckets       float64 // live, of all gateways
	Renewals      float64 // buckets a second
	Waits         float64 // requests a second that wait for a renewal
	Calls         float64 // of the gateways to the servers, a second
	RenewedRatio  float64
	GatewayCPU    float64 // processors of all gateways
	GatewayBytes  float64 // of one gateway
	ServerCPU     float64
	RedisCPU      float64 // masters and one replica each
	Shards        int     // masters, one processor each
	RedisBytes    float64
	Rows          float64 // of reports a second
	PostgresCPU   float64
	PostgresMonth float64 // bytes of entries a month
	ReportsMonth  float64 // and of reports, for as long as they are kept
	MoneyMonth    float64 // servers, Redis and Postgres, not the gateways
}

// ErrLoad means that a load makes no sense.
var ErrLoad = errors.New("size: invalid load")

// Validate reports every fault.
func (l *Load) Validate() error {
	var faults []error
	check := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s", ErrLoad, what))
		}
	}
	check(l.Rate > 0 && l.Rate <= 1e12, "rate: above 0 and at most 10^12")
	check(l.Gateways >= 1 && l.Gateways <= 100_000, "gateways: 1 to 100,000")
	check(l.Tenants >= 1 && l.Tenants <= 100_000_000, "tenants: 1 to 100,000,000")
	check(l.Limits >= 1 && l.Limits <= 64, "limits: 1 to 64")
	check(l.Saturated >= 0 && l.Saturated <= 1, "saturated: 0 to 1")
	check(l.Beyond > 1 || l.Saturated == 0, "beyond: above 1")
	check(l.Zipf >= 0 && l.Zipf <= 3, "zipf: 0 to 3")
	check(l.Report >= time.Second, "report: at least 1s")
	check(l.Busy > 0 && l.Busy <= 1, "busy: above 0 and at most 1")
	check(l.Core >= 0 && l.GiBMonth >= 0, "prices: at least 0")
	return errors.Join(faults...)
}

// Of returns what a valid load needs.
func Of(l Load) Need {
	var n Need
	sum := 0.0
	for i := range l.Tenants {
		sum += math.Pow(float64(i+1), -l.Zipf)
	}
	gateways, limits, report := float64(l.Gateways), float64(l.Limits), l.Report.Seconds()
	for i := range l.Tenants {
		d := l.Rate * math.Pow(float64(i+1), -l.Zipf) / sum / gateways // a second, of one bucket
		live := gateways * (1 - math.Exp(-d*2*term))                   // gateways that asked lately
		n.Buckets += live * limits
		plenty := min(d, 1/term) * gateways
		if d >= known {
			plenty = gateways / longTerm
		}
		n.Renewals += plenty * (limits - l.Saturated)
		n.Rows += gateways * (1 - math.Exp(-d*report)) / report
		switch {
		case l.Saturated == 0:
		case d/l.Beyond >= worth:
			n.Renewals += l.Saturated * early / min(max(units/d, minScarce), maxScarce) * gateways
		default:
			n.Renewals += l.Saturated * d * gateways // each request asks
			n.Waits += l.Saturated * d * gateways
		}
	}
	n.RenewedRatio = n.Renewals / l.Rate
	n.Calls = min(n.Renewals, gateways*calls+min(n.Waits, gateways*waitCalls)) + gateways/report
	n.GatewayCPU = l.Rate*limits*decisionCPU + n.Renewals*agentCPU
	n.GatewayBytes = n.Buckets / gateways * bucketBytes
	n.ServerCPU = n.Renewals*serverCPU + n.Calls*callCPU + n.Rows*rowServer
	n.RedisCPU = n.Renewals * (stepCPU + replicaCPU)
	n.Shards = max(int(math.Ceil(n.Renewals*stepCPU/l.Busy)), 1)
	n.RedisBytes = n.Buckets*recordBytes + float64(l.Tenants)*limits*stateBytes
	n.PostgresCPU = n.Rows * rowCPU
	n.PostgresMonth = float64(l.Tenants) * slotsHour * 24 * 30 * entryBytes
	n.ReportsMonth = n.Rows * 3600 * 24 * 30 * rowBytes
	n.MoneyMonth = (n.ServerCPU+n.RedisCPU+n.PostgresCPU)/l.Busy*l.Core*24*30 + (n.PostgresMonth+n.ReportsMonth)/(1<<30)*l.GiBMonth
	return n
}

// Write prints what a load needs, for people.
func Write(w io.Writer, l Load, n Need) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	const mib, gib = 1 << 20, 1 << 30
	line("load", "%.0f requests/s, %d gateways, %d tenants, %d limits a request", l.Rate, l.Gateways, l.Tenants, l.Limits)
	line("live buckets", "%.0f", n.Buckets)
	line("buckets renewed", "%.0f a second, %.3f %% of requests", n.Renewals, 100*n.RenewedRatio)
	line("requests that wait for one", "%.0f a second", n.Waits)
	line("calls to servers", "%.0f a second, %.4f %% of requests", n.Calls, 100*n.Calls/l.Rate)
	line("gateways, all", "%.1f processors for decisions and leases", n.GatewayCPU)
	line("each gateway", "%.0f MiB", n.GatewayBytes/mib)
	line("quota-server", "%.1f processors in use, so %d at %.0f %%", n.ServerCPU, int(math.Ceil(n.ServerCPU/l.Busy)), 100*l.Busy)
	line("Redis", "%d masters of one processor, a replica each; %.0f MiB", n.Shards, n.RedisBytes/mib)
	line("report rows", "%.0f a second: %.2f processors of Postgres", n.Rows, n.PostgresCPU)
	line("Postgres", "%.1f GiB of entries and %.1f GiB of reports a month", n.PostgresMonth/gib, n.ReportsMonth/gib)
	line("money", "%.0f a month at %.3f a processor and hour and %.2f a GiB and month, without the gateways", n.MoneyMonth, l.Core, l.GiBMonth)
	return t.Flush()
}
