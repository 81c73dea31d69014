package budgets

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/internal/core/unraced"
	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
)

var (
	gateways = flag.Int("gateways", 64, "that share the budgets")
	minute   = flag.Int64("minute", 600_000, "tokens a minute")
	burst    = flag.Int64("burst", 100_000, "tokens at once")
	month    = flag.Int64("month", 7_000_000, "millionths of a dollar a month")
	asked    = flag.Float64("asked", 1.3, "tokens that callers want, for each that the minutes bring")
	duration = flag.Duration("duration", 210*time.Second, "of the load")
	kills    = flag.Duration("kills", 15*time.Second, "a gateway is killed so often; 0 for never")
)

// journaled is how many gateways have a journal, and are killed.
const journaled = 8

// memory returns a new directory, in memory where the machine has such: a disk is slower than virtual time.
func memory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "quota-budgets-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Sixty-four gateways share a tenant's tokens a minute and its month, of which callers want more. The ledger has what
// was streamed, whatever is reserved of an answer. No more is used than the budgets and an extension for each stream,
// and hardly less. Two controls: gateways that reserve the most leave most of the minutes unused, and gateways that
// reserve nothing, and count afterwards, overspend.
func TestBudgets(t *testing.T) {
	unraced.Only(t) // which goroutines meet is what TestKilledGateways shows
	const pace = 60
	b := budget{*minute, *burst, *month}
	windows := budget{*minute, 0, *month}
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "reserved\tminutes used %\tmonth used %\ttokens over\tmonth over\tdenied %\tended early %\textends each\tstreams")
	for _, run := range []struct {
		strategy
		budget
		check func(t *testing.T, c *counts)
	}{
		{strategy{"nothing", 0, 0, pace, false}, b, overspends},
		{strategy{"4096", mostTokens, 0, pace, false}, b, wastes},
		{strategy{"128 and 128 more", 128, 128, pace, false}, b, fits},
		{strategy{"the same, in windows", 128, 128, pace, false}, windows, fits},
		{strategy{"likely of 4096, and 128 more", mostTokens, 128, pace, true}, b, fits},
	} {
		t.Run(run.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := play(t, run.budget, &run.strategy)
				run.check(t, c)
				of := func(n, all int64) float64 { return 100 * float64(n) / float64(all) }
				fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%d\t%d\t%.1f\t%.1f\t%.2f\t%d\n", run.name, 100*c.usedOfMinutes(), 100*c.usedOfMonth(), c.over, c.spent-c.budget.month,
					of(c.denied, c.asked), of(c.early, c.requests), float64(c.calls-c.asked)/float64(c.requests), c.most)
			})
		})
	}
	if err := table.Flush(); err != nil {
		t.Error(err)
	}
}

// least is the part of a budget that must be used.
const least = 0.95

func fits(t *testing.T, c *counts) {
	if c.beyond > 0 {
		t.Errorf("%d tokens above the budget beyond an extension of each stream under way, of %d in all", c.beyond, c.over)
	}
	if most := c.budget.month + spend("large", usage{out: c.extend})*c.most; c.spent > most {
		t.Errorf("%d of the month were spent, want %d at most", c.spent, most)
	}
	if used := c.usedOfMinutes(); used < least {
		t.Errorf("%.4f of the minutes were used, want %v", used, least)
	}
	if used := c.usedOfMonth(); used < least {
		t.Errorf("%.4f of the month were used, want %v", used, least)
	}
}

func wastes(t *testing.T, c *counts) {
	if used := c.usedOfMinutes(); c.over > 0 || used > 0.5 {
		t.Errorf("%d tokens above the budget, and %.4f of the minutes used; want none and half at most", c.over, used)
	}
}

func overspends(t *testing.T, c *counts) {
	if c.beyond < c.budget.burst/10 {
		t.Errorf("%d tokens above the budget: it is no control", c.beyond)
	}
}

// life is a gateway's process from its start to its end.
type life struct {
	client  *client.Client
	network *network
	ctx     context.Context // its
	end     context.CancelFunc
	streams sync.WaitGroup
}

// network is a gateway's connections.
type network struct {
	dial func(context.Context, string) (net.Conn, error)

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *network) connect(ctx context.Context, addr string) (net.Conn, error) {
	c, err := n.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	if n.cut {
		return nil, errors.Join(errors.New("the network is cut"), c.Close())
	}
	return c, nil
}

// sever ends all connections for good.
func (n *network) sever() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for _, c := range n.conns {
		_ = c.Close()
	}
}

// site is gateways before one server.
type site struct {
	t        *testing.T
	strategy *strategy
	dial     func(context.Context, string) (net.Conn, error)
	counts   *counts
	journals []string // the killer's

	mu    sync.Mutex
	lives []*life // nil while a gateway is down
}

// play has callers ask the gateways, closes them, and holds the ledger to what was counted.
func play(t *testing.T, b budget, s *strategy) *counts {
	grpcs, https := bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	dial := bubbled.NewDialing().To(grpcs)
	server, err := boot.New(t.Context(), boot.Config{DataDir: memory(t), GRPC: grpcs, HTTP: https, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:budgets", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := stack.Apply(t.Context(), conn, b.document(s)); err != nil {
		t.Fatal(err)
	}
	at := &site{t: t, strategy: s, dial: dial, counts: newCounts(b, s), lives: make([]*life, *gateways), journals: make([]string, min(journaled, *gateways))}
	for i := range at.journals {
		at.journals[i] = memory(t)
	}
	for i := range at.lives {
		at.start(i)
	}
	at.load()
	for _, l := range at.lives {
		l.streams.Wait()
		if err := l.client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		l.end()
	}
	for meter, want := range at.counts.meters() {
		units, err := stack.Usage(t.Context(), conn, meter, []string{tenant})
		if err != nil {
			t.Fatal(err)
		}
		if got := units[tenant]; got != want || len(units) > 1 {
			t.Errorf("the ledger has %v %s, streamed were %d", units, meter, want)
		}
	}
	return at.counts
}

// load has callers ask and gateways be killed.
func (s *site) load() {
	rng, tokens := rand.New(rand.NewPCG(1, 1)), int64(0)
	const draws = 100_000
	for range draws {
		q := draw(rng)
		tokens += q.tokens()
	}
	perSecond := *asked * float64(*minute) / 60 * draws / float64(tokens)
	asking, cancel := context.WithTimeout(s.t.Context(), *duration)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for i := range s.lives {
		all.Go(func() { s.callers(asking, i, perSecond/float64(len(s.lives))) })
	}
	if *kills > 0 {
		all.Go(func() { s.kills(asking) })
	}
}

// start starts a gateway.
func (s *site) start(i int) {
	l := &life{network: &network{dial: s.dial}}
	options := []client.Option{client.WithDialer(l.network.connect), client.WithAgent(fmt.Sprint("gateway-", i)), client.WithLogger(slog.New(slog.DiscardHandler))}
	if i < len(s.journals) {
		options = append(options, client.WithJournal(s.journals[i]))
	}
	var err error
	if l.client, err = client.Dial(s.t.Context(), "passthrough:budgets", options...); err != nil {
		s.t.Fatal(err)
	}
	l.ctx, l.end = context.WithCancel(s.t.Context())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[i] = l
}

// callers ask one gateway until ctx ends.
func (s *site) callers(ctx context.Context, i int, perSecond float64) {
	rng := rand.New(rand.NewPCG(7, uint64(i)))
	for n := uint64(0); ; n++ {
		select {
		case <-time.After(time.Duration(rng.ExpFloat64() / perSecond * float64(time.Second))):
		case <-ctx.Done():
			return
		}
		s.serve(i, draw(rng), rand.New(rand.NewPCG(uint64(i), n)))
	}
}

// serve has a gateway serve a request, if it is up.
func (s *site) serve(i int, q request, rng *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[i]
	if l == nil {
		return
	}
	l.streams.Go(func() {
		stream := s.counts.follow(q)
		defer stream.killed()
		relay(l.ctx, l.client, s.strategy, q, rng, stream)
	})
}

// kills kills gateways until ctx ends. Each is back two seconds later.
func (s *site) kills(ctx context.Context) {
	rng := rand.New(rand.NewPCG(7, 7))
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-time.After(*kills):
		case <-ctx.Done():
			return
		}
		i := rng.IntN(len(s.journals))
		before := s.journals[i]
		if l := s.kill(i); l != nil {
			all.Go(func() {
				time.Sleep(2 * time.Second)
				s.start(i)
				l.streams.Wait()
				// What is left of it can tell nobody of what it did, and has no journal that counts.
				closing, cancel := context.WithTimeout(s.t.Context(), time.Second)
				defer cancel()
				if err := l.client.Close(closing); err != nil && !errors.Is(err, client.ErrUnsettled) {
					s.t.Error(err)
				}
				_ = os.RemoveAll(before)
			})
		}
	}
}

// kill ends a gateway at an instant at which all stand still. What its journal has then is all that is left of it. It
// returns the life that is over; nil where it was down.
func (s *site) kill(i int) *life {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[i]
	if l == nil {
		return nil
	}
	journal := memory(s.t)
	if err := os.CopyFS(journal, os.DirFS(s.journals[i])); err != nil {
		s.t.Error(err)
	}
	l.network.sever()
	l.end()
	s.lives[i], s.journals[i] = nil, journal
	return l
}
