package bench

import (
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/time/rate"

	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// open returns a client of a plentiful server, for the length of a test: one tenant is
// under a limit by user, all others under a limit of their own.
func open(tb testing.TB, opts ...client.Option) *client.Client {
	policy := &quotav1.Policy{Plans: []*quotav1.Plan{
		{Name: "one", Limits: []*quotav1.Limit{Limit("requests", "requests")}},
		{Name: "users", Limits: []*quotav1.Limit{Limit("per-user", "", "user")}},
	}}
	c, stop, err := Open(policy, func(id string) string {
		if id == "users" {
			return "users"
		}
		return "one"
	}, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

const live = 100_000 // buckets

// names returns distinct keys of the length of common ids.
func names(kind string) []string {
	s := make([]string, live)
	for i := range s {
		s[i] = fmt.Sprintf("%s-%08x-%04x", kind, uint32(i)*2654435761, i&0xffff)
	}
	return s
}

// order is a walk over keys that no prefetcher guesses, each goroutine's its own.
type order struct{ state uint32 }

var walks atomic.Uint32

func walk() order { return order{walks.Add(1) * 7919} }

func (o *order) next() uint32 {
	o.state = o.state*1664525 + 1013904223
	return o.state >> 4 % live
}

func endless() *rate.Limiter { return rate.NewLimiter(rate.Limit(1e15), 1<<50) }
