// Package size says what a load needs: servers, Redis shards, Postgres, memory in the gateways, and the cost of it.
// README.md has the formulas, and where each constant is from. leases.go says how often leases are renewed, calls.go in
// how many calls, and ledger.go what is written for usage. Here it is added up.
package size

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Load is the load to be served.
type Load struct {
	Rate      float64       // requests a second
	Gateways  int           // each with leases of its own
	Spread    int           // gateways that one tenant's requests come to; 0 for all
	Tenants   int           // that are in use
	Limits    int           // that a request meets, each with a bucket for each tenant
	Keys      int           // ledger keys of a tenant, over which its requests are spread evenly
	Saturated float64       // percent of the tenants that ask for more than a limit of theirs
	Beyond    float64       // how many times their limit these ask for
	Near      float64       // percent of the tenants that ask for about as much as their limit
	Burst     time.Duration // how long limits' bursts last at their rates
	Zipf      float64       // exponent of how requests spread over tenants; 0 for evenly
	Report    time.Duration // between two reports of a gateway
	Fold      time.Duration // between two folds of a server
	Servers   int           // quota-servers, each of which folds
	RoundTrip time.Duration // of a call from a gateway to a server
	Busy      float64       // the part of a processor that is to be in use, 0 to 1
	Core      float64       // money for a processor and hour
	GiBMonth  float64       // money for a GiB of disk and month
}

// Need is what a load needs.
type Need struct {
	Buckets       float64 // live, of all gateways
	Renewals      float64 // buckets a second
	Waits         float64 // requests a second that wait for a renewal
	Calls         float64 // of the gateways to the servers, a second
	Beginning     float64 // renewals a second in the first minute after all gateways begin anew
	GatewayCPU    float64 // processors of all gateways
	ReportsCPU    float64 // of these, for reports
	GatewayBytes  float64 // of one gateway, which the collector lets grow to twice that
	ServerCPU     float64
	RedisCPU      float64 // masters and one replica each
	Shards        int     // masters, one processor each
	RedisBytes    float64
	Rows          float64 // of reports a second
	Entries       float64 // of the ledger a second
	SlotEntries   float64 // of a key in use and slot of five minutes, on average
	Folding       float64 // the part of the time in which somebody folds, for one does at a time: above 1 the ledger falls behind
	PostgresCPU   float64
	EntriesMonth  float64 // bytes of entries a month
	RollupsMonth  float64 // of roll-ups
	ReportsMonth  float64 // and of reports, for as long as they are kept
	PostgresBytes float64 // what does not grow: keys, and which agents touched which tenants
	MoneyMonth    float64 // servers, Redis and Postgres, not the gateways
}

// ErrLoad means that a load makes no sense.
var ErrLoad = errors.New("size: invalid load")

// Validate reports every fault.
func (l *Load) Validate() error {
	var faults []error
	check := func(ok bool, what string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+what, append([]any{ErrLoad}, args...)...))
		}
	}
	percent := func(name string, v float64) {
		check(v <= 0 || v >= 1, "%s: percent, and %g is less than one: %g is given as %g", name, v, v, 100*v)
		check(v >= 0 && v <= 100, "%s: 0 to 100 percent", name)
	}
	check(l.Rate > 0 && l.Rate <= 1e12, "rate: above 0 and at most 10^12")
	check(l.Gateways >= 1 && l.Gateways <= 100_000, "gateways: 1 to 100,000")
	check(l.Spread >= 0 && l.Spread <= l.Gateways, "spread: 0, or as many as there are gateways at most")
	check(l.Tenants >= 1 && l.Tenants <= 100_000_000, "tenants: 1 to 100,000,000")
	check(l.Limits >= 1 && l.Limits <= 64, "limits: 1 to 64")
	check(l.Keys >= 1 && l.Keys <= 1_000_000, "keys: 1 to 1,000,000")
	percent("saturated", l.Saturated)
	percent("near", l.Near)
	check(l.Saturated+l.Near <= 100, "saturated and near: 100 percent at most together")
	check(l.Beyond > 1 || l.Saturated == 0, "beyond: above 1")
	check(l.Burst > 0, "burst: above 0")
	check(l.Zipf >= 0 && l.Zipf <= 3, "zipf: 0 to 3")
	check(l.Report >= time.Second && l.Report <= time.Hour, "report-interval: 1s to 1h")
	check(l.Fold >= time.Second && l.Fold <= ledger.DefaultSlot, "fold-interval: 1s to %s", ledger.DefaultSlot)
	check(l.Servers >= 1 && l.Servers <= 1000, "servers: 1 to 1000")
	check(l.RoundTrip > 0 && l.RoundTrip <= time.Second, "round-trip: above 0 and at most 1s")
	check(l.Busy > 0 && l.Busy <= 1, "busy: above 0 and at most 1")
	check(l.Core >= 0 && l.GiBMonth >= 0, "prices: at least 0")
	return errors.Join(faults...)
}

// class is a part of the tenants' buckets that ask for the same part of their limit.
type class struct {
	part   float64 // buckets for each tenant
	demand float64 // as part of the limit
}

// classes assumes that one limit of a tenant is near its rate or beyond it, and no other.
func (l *Load) classes() []class {
	beyond, near := l.Saturated/100, l.Near/100
	return []class{{float64(l.Limits) - beyond - near, calmDemand}, {near, nearDemand}, {beyond, l.Beyond}}
}

// eachTenant calls f with a number of tenants and the requests a second of each. The first hundreds come one by one,
// the others in groups of similar tenants.
func (l *Load) eachTenant(f func(tenants, rate float64)) {
	weight := func(i, tenants float64) float64 { return math.Pow(i+(tenants+1)/2, -l.Zipf) }
	each := func(f func(tenants, weight float64)) {
		for i := 0; i < l.Tenants; {
			n := min(max(i/400, 1), l.Tenants-i)
			f(float64(n), weight(float64(i), float64(n)))
			i += n
		}
	}
	sum := 0.0
	each(func(tenants, weight float64) { sum += tenants * weight })
	each(func(tenants, weight float64) { f(tenants, l.Rate*weight/sum) })
}

// Of returns what a valid load needs.
func Of(l Load) Need {
	var n Need
	gateways, limits, keys, report := float64(l.Gateways), float64(l.Limits), float64(l.Keys), l.Report.Seconds()
	const month = 3600 * 24 * 30
	spread := gateways
	if l.Spread > 0 {
		spread = float64(l.Spread)
	}
	kept := max(idle, 2*report) // buckets, after their last use
	var live, used, touched, rollups float64
	classes := l.classes()
	calls, pressing := make([]planned, len(classes)), 0.0
	l.eachTenant(func(tenants, rate float64) {
		d := rate / spread
		here := tenants * (1 - math.Exp(-d*kept)) * spread / gateways
		live += here // tenants at each gateway
		for i, c := range classes {
			p := renewed(spread, d, c.demand, l.Burst.Seconds())
			of := c.part * tenants * spread
			n.Renewals += of * p.renewals
			n.Waits += of * p.waits
			pressing += of * min(p.waits, p.renewals)
			calls[i].add(c.part*here, of*max(p.renewals-p.waits, 0)/gateways)
		}
		b := booked(spread, d/keys, l.Report, l.Fold, l.Servers)
		n.Rows += tenants * keys * b.rows
		n.Entries += tenants * keys * b.entries
		rollups += tenants * keys * b.rollups
		slot := ledger.DefaultSlot.Seconds()
		used += tenants * keys * (1 - math.Exp(-rate/keys*slot)) / slot
		touched += tenants * spread * (1 - math.Exp(-d*24*3600))
	})
	n.Buckets = gateways * live * limits
	n.Beginning = n.Buckets * firstMinute / 60
	n.Calls = gateways * (callsOf(calls, pressing/gateways, l.RoundTrip.Seconds()) + 1/report)
	n.ReportsCPU = n.Buckets * reportCPU / report
	n.GatewayCPU = l.Rate*limits*decisionCPU + n.Renewals*agentCPU + n.ReportsCPU
	n.GatewayBytes = clientBytes + live*(tenantBytes+(limits-1)*bucketBytes)
	again := n.Rows * l.Fold.Seconds() / 2 / tally // by all servers: the more there are, the sooner rows are folded
	n.ServerCPU = n.Renewals*serverCPU + n.Calls*callCPU + n.Rows*rowServerCPU + n.Entries*foldCPU + again*againServer
	n.RedisCPU = n.Renewals * (stepCPU + replicaCPU)
	n.Shards = max(int(math.Ceil(n.Renewals*stepCPU/l.Busy)), 1)
	n.RedisBytes = n.Buckets*holderBytes + float64(l.Tenants)*limits*stateBytes
	n.SlotEntries = n.Entries / used
	n.Folding = n.Entries * (entryCPU + foldCPU)
	n.PostgresCPU = n.Rows*rowCPU + again*againCPU + n.Entries*entryCPU
	n.EntriesMonth = (n.Entries*entryBytes + used*usedBytes) * month
	n.RollupsMonth = rollups * month * rollupBytes
	n.ReportsMonth = n.Rows * month * rowBytes
	n.PostgresBytes = float64(l.Tenants)*keys*keyBytes + touched*touchBytes
	disk := n.EntriesMonth + n.RollupsMonth + n.ReportsMonth + n.PostgresBytes
	n.MoneyMonth = (n.ServerCPU+n.RedisCPU+n.PostgresCPU)/l.Busy*l.Core*24*30 + disk/gib*l.GiBMonth
	return n
}
