//go:build linux

package boot_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/testenv"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// fleet is agents of one server at a time, and what they admitted.
type fleet struct {
	t        testing.TB
	target   atomic.Pointer[string]
	admitted int64
	dirs     map[string]string // journals
	running  map[string]*client.Client
}

func newFleet(t testing.TB, n *node) *fleet {
	f := &fleet{t: t, dirs: map[string]string{}, running: map[string]*client.Client{}}
	f.to(n)
	return f
}

// to has the agents' calls go to that server.
func (f *fleet) to(n *node) {
	addr := n.GRPCAddr()
	f.target.Store(&addr)
}

func (f *fleet) dial(ctx context.Context, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", *f.target.Load())
}

func (f *fleet) start(name string) {
	f.t.Helper()
	if f.dirs[name] == "" {
		f.dirs[name] = filepath.Join(f.t.TempDir(), name)
	}
	c, err := client.Dial(f.t.Context(), "passthrough:server", client.WithDialer(f.dial), client.WithAgent(name),
		client.WithJournal(f.dirs[name]), client.WithReportInterval(200*time.Millisecond), client.WithFirstWait(patience), client.WithCloseWait(patience))
	if err != nil {
		f.t.Fatal(err)
	}
	f.running[name] = c
}

// ask asks n times, for tenants of that agent.
func (f *fleet) ask(name string, n int) {
	f.t.Helper()
	for i := range n {
		if f.running[name].Allow(f.t.Context(), client.Tenant(fmt.Sprintf("tenant-%d", i%3))).Allowed {
			f.admitted++
		}
	}
}

func (f *fleet) close(name string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.running[name].Close(ctx); err != nil {
		f.t.Errorf("close %s: %v", name, err)
	}
	delete(f.running, name)
}

// settled waits until all is acknowledged.
func (f *fleet) settled() {
	f.t.Helper()
	for name, c := range f.running {
		eventually(f.t, name+" has settled all", func() bool {
			s := c.Stats()
			return s.UnitsPending == 0 && s.UnitsSettled+s.UnitsRecovered >= c.Counters().Billed
		}, func() any { return c.Stats() })
	}
}

// healed waits until the ledger has what was admitted, and demands that it stays so, and is sound.
func (f *fleet) healed(n *node, when string) {
	f.t.Helper()
	var got int64
	eventually(f.t, when+" the ledger has what was admitted", func() bool {
		got = n.billed()
		return got >= f.admitted
	}, func() any { return fmt.Sprintf("%d of %d", got, f.admitted) })
	time.Sleep(time.Second) // for what may come twice
	if got = n.billed(); got != f.admitted {
		f.t.Errorf("%s the ledger has %d units, %d were admitted", when, got, f.admitted)
	}
	verified, err := quotav1.NewLedgerServiceClient(n.dial(n.key)).Verify(f.t.Context(), &quotav1.VerifyRequest{})
	for err == nil {
		var p *quotav1.VerifyResponse
		if p, err = verified.Recv(); err == nil && len(p.GetResult().GetFaults()) > 0 {
			f.t.Errorf("%s the ledger has faults: %v", when, p.GetResult().GetFaults())
		}
	}
	if err != io.EOF {
		f.t.Error(err)
	}
}

func (n *node) billed() (sum int64) {
	for i := range 3 {
		u, err := n.usage().GetUsage(n.t.Context(), &quotav1.GetUsageRequest{Tenant: fmt.Sprintf("tenant-%d", i)})
		if err != nil {
			return -1
		}
		for _, r := range u.Rows {
			sum += r.Admitted
		}
	}
	return sum
}

const wentBackPolicy = `
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 1000000/second, burst: 1000000, meter: requests}
default_plan: free
`

// A ledger goes back while three agents hold more than it has: one at work, one idle, and one that has ended and comes
// again under a new epoch. back puts a server on the ledger as it was when copied was called.
func wentBack(t *testing.T, n *node, copied func() *node, back func() *node) {
	f := newFleet(t, n)
	for _, name := range []string{"busy", "idle", "ended"} {
		f.start(name)
		f.ask(name, 10)
	}
	f.settled()
	n = copied()
	f.to(n)
	lost := -f.admitted
	for range 3 {
		for _, name := range []string{"busy", "idle", "ended"} {
			f.ask(name, 50)
		}
		f.settled()
	}
	f.close("ended")
	lost += f.admitted
	f.healed(n, "before it goes back")
	n = back()
	f.to(n)
	if got := n.billed(); got >= f.admitted {
		t.Fatalf("the ledger has %d units, so it has not gone back", got)
	}
	f.start("ended") // whose own report tells nothing: its epoch is new
	f.ask("busy", 50)
	f.healed(n, "healed")
	resent := int64(0)
	for name, c := range f.running {
		f.close(name)
		s := c.Stats()
		resent += s.UnitsResent
		if s.UnitsForgotten != 0 || s.UnitsAside != 0 {
			t.Errorf("%+v, want nothing forgotten, and nothing aside", s)
		}
	}
	if resent != lost || lost < 100 {
		t.Errorf("%d units were sent again, the ledger had lost %d", resent, lost)
	}
}

// The file of an embedded server's ledger is put back from a copy.
func TestSQLiteLedgerPutBack(t *testing.T) {
	c := embedded(t, wentBackPolicy)
	n := start(t, c)
	n.waitReady()
	path := filepath.Join(c.DataDir, "quota.db")
	saved := filepath.Join(t.TempDir(), "saved.db")
	restart := func(from, to string) *node {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(path + "-*")
		if err != nil || len(left) > 0 {
			t.Fatalf("a ledger that was closed left %v, %v", left, err)
		}
		body, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, body, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		n = start(t, c)
		n.waitReady()
		return n
	}
	wentBack(t, n, func() *node { return restart(path, saved) }, func() *node { return restart(saved, path) })
}

// Postgres is restored from a base backup: the same system, the same timeline, at the same address.
func TestPostgresRestored(t *testing.T) {
	pg := testenv.CopiedPostgres(t)
	c := production(t, pg)
	n := start(t, c)
	n.apply(wentBackPolicy)
	n.waitReady()
	var restore func()
	wentBack(t, n, func() *node {
		restore = pg.Backup()
		return n
	}, func() *node {
		restore()
		n.waitReady()
		return n
	})
}

// A primary is lost, and its asynchronous standby, which had not heard of the last, is promoted: the servers go on with
// it.
func TestPostgresFailsOverWithoutItsTail(t *testing.T) {
	primary := testenv.CopiedPostgres(t)
	c := production(t, primary)
	standby := primary.Standby()
	c.Ledger = twoHosts(t, primary.AppURL(), standby.URL(testenv.AppUser, testenv.AppPassword))
	n := start(t, c)
	n.apply(wentBackPolicy)
	n.waitReady()
	wentBack(t, n, func() *node {
		standby.Deafen(primary)
		return n
	}, func() *node {
		primary.Stop()
		standby.Promote()
		n.waitReady()
		return n
	})
}

// twoHosts is the URL of whichever of two servers takes writes.
func twoHosts(t *testing.T, a, b string) string {
	t.Helper()
	_, other, _ := strings.Cut(b, "@")
	other, _, _ = strings.Cut(other, "/")
	head, tail, ok := strings.Cut(a, "/t") // the database's name begins so
	if !ok {
		t.Fatal(a)
	}
	return head + "," + other + "/t" + tail + "&target_session_attrs=read-write"
}
