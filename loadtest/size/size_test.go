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
	return Load{Rate: 1e6, Gateways: 10, Tenants: 100, Limits: 1, Beyond: 2, Report: 10 * time.Second, Busy: 0.5, Core: 0.04, GiBMonth: 0.1}
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
	near("buckets", n.Buckets, 1000)
	near("renewals", n.Renewals, 1000/95.) // each bucket once in two minutes, about
	near("rows", n.Rows, 100)
	near("Redis", n.RedisCPU, 1000/95.*(stepCPU+replicaCPU))
	if n.Waits != 0 || n.Shards != 1 {
		t.Errorf("got %v waits, %d shards", n.Waits, n.Shards)
	}
	l := load()
	l.Saturated = 1
	near("all saturated", Of(l).Renewals, 1500) // each bucket once a second, and half as often before its time
	l.Rate = 1000                               // one a second: ten seconds' terms
	near("saturated, a unit a second", Of(l).Renewals, 150)
	l.Rate = 100
	if n := Of(l); n.Waits == 0 || math.Abs(n.Renewals-100) > 1e-6 {
		t.Errorf("saturated and sparse: got %v renewals, %v waits; each request asks", n.Renewals, n.Waits)
	}
}

// More of anything never needs less.
func TestMoreNeedsMore(t *testing.T) {
	base := load()
	base.Zipf, base.Saturated = 1.1, 0.2
	n := Of(base)
	for name, more := range map[string]func(l *Load){
		"rate": func(l *Load) { l.Rate *= 2 }, "gateways": func(l *Load) { l.Gateways *= 2 }, "tenants": func(l *Load) { l.Tenants *= 2 },
		"limits": func(l *Load) { l.Limits *= 2 }, "saturated": func(l *Load) { l.Saturated *= 2 },
	} {
		l := base
		more(&l)
		m := Of(l)
		if m.Renewals < n.Renewals || m.Buckets < n.Buckets || m.ServerCPU < n.ServerCPU || m.MoneyMonth < n.MoneyMonth {
			t.Errorf("twice the %s needs less: %+v, before %+v", name, m, n)
		}
	}
}

func TestCommand(t *testing.T) {
	var out bytes.Buffer
	if err := Command([]string{"-rate", "50000000", "-tenants", "1000"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "50000000 requests/s") || !strings.Contains(out.String(), "masters") {
		t.Errorf("got\n%s", out.String())
	}
	if err := Command([]string{"-rate", "0", "-gateways", "0"}, io.Discard, io.Discard); !errors.Is(err, ErrLoad) || !strings.Contains(err.Error(), "gateways") {
		t.Errorf("got %v, want both faults", err)
	}
}
