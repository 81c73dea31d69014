package load

import (
	"cmp"
	"context"
	"flag"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
)

var (
	gateways = flag.Int("gateways", 4, "of the load in virtual time")
	tenants  = flag.Int("tenants", 200, "likewise")
	rate     = flag.Int64("rate", 8_000, "decisions a second, likewise")
	burst    = flag.Duration("burst", 10*time.Second, "likewise")
	warm     = flag.Duration("warm", 30*time.Second, "likewise")
	duration = flag.Duration("duration", 20*time.Second, "likewise")
	limits   = flag.Int("limits", 1, "likewise")
	shape    = flag.String("shape", Zipf, "likewise")
	capacity = flag.Int("capacity", 0, "renewals a second that the server answers, likewise; 0 for any")
)

// A load in virtual time is what it would be on a machine that is fast enough: it has the rate that was asked for, its tenants
// get what one limiter would have given them, and what it takes of the processor is measured by what it did, and not by how long
// that took. Flags make it another load, as large as the headline's.
func TestLoadInVirtualTime(t *testing.T) {
	c := Config{Gateways: *gateways, Tenants: *tenants, Duration: *duration, Warm: *warm, Rate: *rate, Shape: *shape, Limits: *limits, Burst: *burst}
	virtually(t, c, *capacity, func(r *Result) {
		if n := r.DecisionsPerSecond / float64(c.Rate); *capacity == 0 && (n < 0.99 || n > 1.01) { // a server that can do less may slow the load
			t.Errorf("got %.0f decisions a second, asked were %d", r.DecisionsPerSecond, c.Rate)
		}
	})
}

// Of a server that can renew each lease every twenty seconds no more is asked, once agents know: leases last longer, and what requests wait
// for comes. Without their telling it of their strain a third of the decisions were made, and three of four of these were denials.
func TestLoadOfABusyServer(t *testing.T) {
	unraced.Only(t) // the goroutines of it are those of TestLoadInVirtualTime, and five times as many
	c := Config{Gateways: 20, Tenants: 250, Duration: 30 * time.Second, Warm: 30 * time.Second, Rate: 25_000, Shape: Zipf, Limits: 1, Burst: 2 * time.Minute}
	virtually(t, c, c.Gateways*c.Tenants/20, func(r *Result) {
		if r.DecisionsPerSecond < 0.5*float64(c.Rate) {
			t.Errorf("got %.0f decisions a second, want %.0f at least", r.DecisionsPerSecond, 0.5*float64(c.Rate))
		}
		if r.AdmittedShare < 0.75 {
			t.Errorf("%.3f were admitted, want 0.75 at least", r.AdmittedShare)
		}
	})
}

// Of tenants that are saturated for good gateways learn that single tokens are not worth a renewal each: they have a trickle, and the ledger and the
// bounds hold as before. Without their telling the server what renewals cost these are 0.047 for each decision.
func TestLoadSaturatedForGood(t *testing.T) {
	unraced.Only(t) // the goroutines of it are those of TestLoadInVirtualTime
	c := Config{Gateways: 20, Tenants: 200, Duration: 2 * time.Minute, Warm: time.Minute, Rate: 22_000, Shape: Zipf, Limits: 1, Burst: 10 * time.Second, Report: client.DefaultReportInterval}
	virtually(t, c, 0, func(r *Result) {
		if r.RenewedRatio > 0.015 || r.WaitedRatio > 0.0075 {
			t.Errorf("%.4f renewals for each decision, of which %.4f wait; want 0.015 and 0.0075 at most", r.RenewedRatio, r.WaitedRatio)
		}
		if math.Abs(r.ErrorPct) > 0.5 || math.Abs(r.ScarceErrorPct) > 2 {
			t.Errorf("error %+.3f %%, %+.3f %% of saturated tenants; want 0.5 and 2 at most", r.ErrorPct, r.ScarceErrorPct)
		}
	})
}

// virtually runs a load in virtual time, with a server that answers so many renewals a second, any for 0, and holds the ledger and the bounds to it.
func virtually(t *testing.T, c Config, capacity int, check func(*Result)) {
	synctest.Test(t, func(t *testing.T) {
		c.Target, c.Seed, c.Saturated, c.Cold, c.Report, c.Touch = "passthrough:load", 1, 20, 5, cmp.Or(c.Report, 30*time.Second), true
		if testing.Verbose() {
			c.Progress = os.Stdout
		}
		plans, err := NewPlans(c)
		if err != nil {
			t.Fatal(err)
		}
		grpcs, https := bufconn.Listen(1<<20), bufconn.Listen(1<<20)
		dialing := bubbled.NewDialing()
		c.Dial = dialing.To(grpcs)
		var leases lease.Store
		if capacity > 0 {
			leases = &busy{Store: memstore.New(), each: time.Second / time.Duration(capacity)}
		}
		s, err := boot.New(t.Context(), boot.Config{DataDir: t.TempDir(), GRPC: grpcs, HTTP: https, Leases: leases, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		running, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(running) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		conn, err := grpc.NewClient(c.Target, grpc.WithContextDialer(c.Dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := stack.Apply(t.Context(), conn, plans.Document); err != nil {
			t.Fatal(err)
		}
		web := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialing.Dial(ctx, https) }}}
		defer web.CloseIdleConnections()
		c.Observe = func(ctx context.Context) (Observation, error) {
			var u syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
				return Observation{}, err
			}
			done, err := stack.ServerDone(ctx, &web, "load")
			return Observation{Renewed: &done.Renewed, CPU: map[string]float64{"all": time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()}}, err
		}
		r, err := Run(t.Context(), c, plans, func(ctx context.Context, names []string) (map[string]int64, error) {
			return stack.Usage(ctx, conn, Meter, names)
		})
		if err != nil {
			t.Fatal(err)
		}
		if testing.Verbose() {
			if err := r.WriteTable(os.Stdout); err != nil {
				t.Fatal(err)
			}
		}
		if !r.LedgerEqual {
			t.Errorf("the ledger has %d, admitted were %d: %v", r.LedgerUnits, r.AdmittedUnits, r.Differences)
		}
		check(r)
		if r.OverBound > 0 {
			t.Errorf("%d windows of %d above the bound", r.OverBound, r.WindowsTested)
		}
		if c.Burst <= 10*time.Second && r.WindowsTested == 0 {
			t.Errorf("of %d windows none could have been above the bound", r.Windows)
		}
	})
}

// busy is a store that takes its time for each renewal, one after the other, whether or not anybody still waits for it.
type busy struct {
	lease.Store
	each time.Duration
	mu   sync.Mutex
	free time.Time // when it has done all that it was asked
}

func (b *busy) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	b.mu.Lock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(time.Duration(len(renewals)) * b.each)
	until := b.free
	b.mu.Unlock()
	time.Sleep(time.Until(until))
	return b.Store.Renew(ctx, renewals)
}
