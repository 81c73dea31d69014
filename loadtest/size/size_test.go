package size

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func load() Load {
	return Load{
		Rate: 1e6, Gateways: 10, Tenants: 100, Limits: 1, Keys: 1, Beyond: 2, Burst: 2 * time.Minute, Report: 10 * time.Second, Fold: 10 * time.Second,
		Servers: 1, RoundTrip: 2 * time.Millisecond, Busy: 0.5, Core: 0.04, GiBMonth: 0.1,
	}
}

// A dense, even load comes to what can be worked out by hand.
func TestDense(t *testing.T) {
	n := Of(load())
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/1000 {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	each := leases.of(together, 1000, calmDemand, 120).renewals
	near("buckets", n.Buckets, 1000)
	near("renewals", n.Renewals, 1000*each)
	near("rows", n.Rows, 100*31./30)             // a report each ten seconds, one in thirty of two slots
	near("entries", n.Entries, 10*31./30)        // a fold each ten seconds
	near("entries of a slot", n.SlotEntries, 31) //
	near("entries a month", n.EntriesMonth, 100*12*24*30*(31*entryBytes+usedBytes))
	near("roll-ups a month", n.RollupsMonth, 100*24*30*rollupBytes)
	near("a gateway", n.GatewayBytes, clientBytes+100*tenantBytes)
	near("reports, gateways", n.ReportsCPU, 1000*reportCPU/10)
	near("Redis", n.RedisCPU, 1000*each*(stepCPU+replicaCPU))
	if n.Waits > 2 || n.Shards != 1 {
		t.Errorf("got %v waits, %d shards", n.Waits, n.Shards)
	}
	l := load()
	l.Saturated = 100
	near("all saturated", Of(l).Renewals, 1000*leases.of(together, 1000, 2, 120).renewals)
	l.Rate = 100 // one a second of each tenant
	if n := Of(l); n.Waits < 70 || n.Renewals < 0.9*n.Waits || n.Renewals > 250 {
		t.Errorf("sparse: got %v renewals, %v waits; each request asks", n.Renewals, n.Waits)
	}
	l = load()
	l.Servers = 2
	near("entries of two servers", Of(l).Entries, 20*31./30)
	l.Report = time.Minute
	near("entries of reports each minute", Of(l).Entries, 20*1.2*(1-math.Pow(1-5./60, 10)))
}

// More of anything never needs less.
func TestMoreNeedsMore(t *testing.T) {
	base := load()
	base.Zipf, base.Saturated, base.Near = 1.1, 20, 2
	n := Of(base)
	for name, more := range map[string]func(l *Load){
		"rate": func(l *Load) { l.Rate *= 2 }, "gateways": func(l *Load) { l.Gateways *= 2 }, "tenants": func(l *Load) { l.Tenants *= 2 },
		"limits": func(l *Load) { l.Limits *= 2 }, "saturated": func(l *Load) { l.Saturated *= 2 }, "near": func(l *Load) { l.Near *= 2 },
		"keys": func(l *Load) { l.Keys *= 2 }, "servers": func(l *Load) { l.Servers *= 2 },
	} {
		l := base
		more(&l)
		m := Of(l)
		if m.Renewals < n.Renewals || m.Buckets < n.Buckets || m.ServerCPU < n.ServerCPU || m.EntriesMonth < n.EntriesMonth || m.MoneyMonth < n.MoneyMonth {
			t.Errorf("twice the %s needs less: %+v, before %+v", name, m, n)
		}
	}
}

// There are no cliffs: a fiftieth more of anything changes nothing by more than a seventh.
func TestNoCliffs(t *testing.T) {
	for name, set := range map[string]func(l *Load, v float64){
		"rate":   func(l *Load, v float64) { l.Rate = v },
		"beyond": func(l *Load, v float64) { l.Beyond = 1 + v/1e7 },
		"burst":  func(l *Load, v float64) { l.Burst = time.Duration(v * 1e6) },
		"report": func(l *Load, v float64) { l.Report = time.Second + time.Duration(v*1e5) },
	} {
		l := load()
		l.Gateways, l.Tenants, l.Saturated, l.Near = 100, 10_000, 20, 1
		var last Need
		for v := 1000.0; v < 1e8; v *= 1.02 {
			set(&l, v)
			n := Of(l)
			for what, pair := range map[string][2]float64{
				"renewals": {last.Renewals, n.Renewals}, "waits": {last.Waits, n.Waits}, "entries": {last.Entries, n.Entries}, "calls": {last.Calls, n.Calls},
			} {
				if a, b := pair[0], pair[1]; a > 10 && math.Abs(math.Log(b/a)) > 0.14 {
					t.Errorf("%s: at %s %g they are %.4g, a fiftieth before %.4g", what, name, v, b, a)
				}
			}
			last = n
		}
	}
}

// Tenants are taken together in large loads, which changes nothing that counts.
func TestTenantsTogether(t *testing.T) {
	l := load()
	l.Tenants, l.Zipf = 100_000, 1.1
	tenants, rate := 0.0, 0.0
	l.eachTenant(func(n, each float64) { tenants, rate = tenants+n, rate+n*each })
	if tenants != 1e5 || math.Abs(rate-l.Rate) > 1 {
		t.Errorf("got %v tenants of %v requests a second in all", tenants, rate)
	}
	sum := 0.0
	for i := range l.Tenants {
		sum += math.Pow(float64(i+1), -l.Zipf)
	}
	first := 0.0
	l.eachTenant(func(_, each float64) { first = max(first, each) })
	if want := l.Rate / sum; math.Abs(first-want) > want/1000 {
		t.Errorf("the largest tenant has %v, want %v", first, want)
	}
}

func TestCommand(t *testing.T) {
	var out bytes.Buffer
	if err := Command([]string{"-rate", "50000000", "-tenants", "1000"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "50,000,000 requests/s") || !strings.Contains(out.String(), "masters") {
		t.Errorf("got\n%s", out.String())
	}
	for what, args := range map[string][]string{
		"gateways: 1 to": {"-rate", "0", "-gateways", "0"},
		"rate: above":    {"-rate", "0", "-gateways", "0"},
		"0.2 is less than one: 0.2 is given as 20": {"-saturated", "0.2"}, // as loadtest's own flag, which takes percent
		"saturated: 0 to 100 percent":              {"-saturated", "101"},
		"near: percent":                            {"-near", "0.05"},
		"100 percent at most together":             {"-near", "60", "-saturated", "60"},
		"fold-interval: 1s to 5m":                  {"-fold-interval", "6m"},
	} {
		if err := Command(args, io.Discard, io.Discard); !errors.Is(err, ErrLoad) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: got %v, want %q", args, err, what)
		}
	}
}
