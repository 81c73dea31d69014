package client

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// ExampleServer is where the examples' quota server listens: a fake in this process.
var ExampleServer = "unix:" + filepath.Join(os.TempDir(), fmt.Sprintf("quota-examples-%d.sock", os.Getpid()))

// Billed is what the examples' ledger has of a tenant.
func Billed(tenant string) int64 {
	return exampleServer.billed(func(r ledger.Row) bool { return r.Tenant == tenant })
}

// OneLimit runs f with a client of a server whose tenant a has a unit a second, and a burst of three.
func OneLimit(t *testing.T, f func(t *testing.T, c *Client)) {
	bubble(t, plans(1, requests(1, 3)), func(t *testing.T, s *fake) { f(t, dial(t, s)) })
}

var exampleServer *fake

// withExamples serves the examples while tests run.
type withExamples struct{ m *testing.M }

func (w withExamples) Run() int {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // clients that chose no logger use it
	path := ExampleServer[len("unix:"):]
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hourly := limit.Rate{Units: 1, Per: time.Hour, Calendar: limit.Hour}
	p := plans(1, limit.Limit{Name: "requests", Rate: hourly, Burst: 3, Meter: "requests"})
	p.Plans = append(p.Plans, limit.Plan{Name: "paced", Limits: []limit.Limit{
		{Name: "mails", Algorithm: limit.TokenBucket, EpsilonPPM: limit.DefaultEpsilonPPM, Rate: perSecond(50), Burst: 1, Meter: "mails"},
	}})
	var nobody struct{ testing.TB } // a fault of an example panics
	exampleServer = newFake(nobody, p)
	for _, id := range []string{"acme", "globex", "initech", "umbrella", "stark", "wayne", "tyrell", "oscorp"} {
		exampleServer.tenants[id] = limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}
	}
	exampleServer.tenants["hooli"] = limit.Tenant{ID: "hooli", Exists: true, Plan: "paced", Revision: 1}
	go func() { _ = exampleServer.srv.Serve(l) }()
	defer exampleServer.stop()
	return w.m.Run()
}
