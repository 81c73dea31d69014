package leasetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// scenarios runs testdata: files that say what requests come when, and which are let through.
//
//	limit algorithm=token_bucket units=4 per=1m [burst=4] [borrow=n] [lockout=d]
//	request at=1:00:01 [at=...] [units=n]
//	requests n=5 from=2:00:30 to=2:01:00       evenly spaced, the first at from
//
// Every request is its own agent's, which asks for it and ends its lease: so what is seen is the store's alone.
// Times are of November 21, 2026, UTC. Each limit of a file has a new bucket.
func scenarios(t *testing.T, open func(t *testing.T) lease.Store) {
	datadriven.Walk(t, testdata(t), func(t *testing.T, path string) {
		s := &scenario{o: renewer{t, open(t)}}
		datadriven.RunTest(t, path, s.run)
	})
}

// testdata finds the scenarios from the directory of the store that is tested, in this module or in another of the
// repository.
func testdata(t *testing.T) string {
	const here = "internal/core/lease/leasetest/testdata"
	at, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for root := at; root != filepath.Dir(root); root = filepath.Dir(root) {
		if dir := filepath.Join(root, here); isDir(dir) {
			return dir
		}
	}
	t.Fatalf("no directory above %s has %s", at, here)
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

type scenario struct {
	o       renewer
	spec    lease.Spec
	buckets int
	n       int64
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	s.o.t = t
	switch d.Cmd {
	case "limit":
		s.spec = lease.Spec{EpsilonPPM: 50_000}
		for _, a := range d.CmdArgs {
			s.set(d, a.Key, a.Vals[0])
		}
		s.buckets++
		return ""
	case "request":
		var out strings.Builder
		units := int64(1)
		for _, a := range d.CmdArgs {
			if a.Key == "units" {
				units = number(d, a.Vals[0])
			}
		}
		for _, a := range d.CmdArgs {
			if a.Key == "at" {
				for _, v := range a.Vals {
					fmt.Fprintf(&out, "%s %s\n", v, s.request(clock(d, v), units))
				}
			}
		}
		return out.String()
	case "requests":
		var n, from, to int64
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "n":
				n = number(d, a.Vals[0])
			case "from":
				from = clock(d, a.Vals[0])
			case "to":
				to = clock(d, a.Vals[0])
			}
		}
		let := 0
		for i := range n {
			if s.request(from+(to-from)*i/n, 1) == "admitted" {
				let++
			}
		}
		return fmt.Sprintf("%d admitted, %d denied\n", let, n-int64(let))
	}
	d.Fatalf(t, "what is %q?", d.Cmd)
	return ""
}

// request asks for units at a time, as an agent of its own.
func (s *scenario) request(at, units int64) string {
	s.n++
	if s.spec.Algorithm.Windowed() {
		in(&s.spec, s.spec.Period, at)
	}
	r := ask(fmt.Sprint("agent-", s.n), s.spec, at, 1, units)
	r.Key, r.Largest = fmt.Sprint("bucket-", s.buckets), units
	g := s.o.one(r)
	admitted := g.Tokens >= units
	spent := int64(0)
	if admitted {
		spent = units
	}
	last := ended(r, spent)
	last.Window, last.Held = g.ValidFrom, g.Tokens-spent
	s.o.one(last)
	if admitted {
		return "admitted"
	}
	wait := g.DenyFor
	if g.Trickle > 0 {
		wait = min(wait, units*limit.Micro*1_000_000/g.Trickle) // it will have them from its trickle
	}
	return "denied, try again in " + (time.Duration(wait) * time.Microsecond).Round(time.Millisecond).String()
}

func (s *scenario) set(d *datadriven.TestData, key, v string) {
	switch key {
	case "algorithm":
		for a := limit.TokenBucket; a <= limit.Concurrency; a++ {
			if a.String() == v {
				s.spec.Algorithm = a
			}
		}
	case "units":
		s.spec.Units = number(d, v)
	case "burst":
		s.spec.Burst = number(d, v)
	case "borrow":
		s.spec.Borrow = number(d, v)
	case "per":
		s.spec.Period = span(d, v)
	case "lockout":
		s.spec.Lockout = span(d, v)
	default:
		panic(d.Pos + ": what is " + key + "?")
	}
}

func number(d *datadriven.TestData, v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(d.Pos + ": " + err.Error())
	}
	return n
}

func span(d *datadriven.TestData, v string) int64 {
	dur, err := time.ParseDuration(v)
	if err != nil {
		panic(d.Pos + ": " + err.Error())
	}
	return dur.Microseconds()
}

func clock(d *datadriven.TestData, v string) int64 {
	at, err := time.Parse("2006-01-02 15:04:05.999", "2026-11-21 "+v)
	if err != nil {
		panic(d.Pos + ": " + err.Error())
	}
	return at.UnixMicro()
}
