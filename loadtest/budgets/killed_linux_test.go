package budgets

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/pkg/client"
)

// Gateways that are processes, and how often each is killed.
const (
	processes = 4
	streams   = 4 // under way at each
	lives     = 4
)

// quick is what they reserve: models that are a hundred times as fast as others.
var quick = strategy{"parts of 128", 128, 128, 6000, false}

// Gateways with journals are killed with SIGKILL in mid-stream, and start again. Of each stream that was under way the
// ledger has what the gateway said last, to the token: what it had passed on, or was about to. Besides it may have what
// calls asked for that were not answered yet. The month is overspent by no more than an extension for each stream.
func TestKilledGateways(t *testing.T) {
	if os.Getenv(gatewayEnv) != "" {
		t.Skip("this is a gateway")
	}
	b := budget{minute: 3_000_000, burst: 100_000, month: 500_000}
	server, err := stack.Embedded(t.Context(), b.document(&quick))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	from := time.Now().UTC()
	var all sync.WaitGroup
	gateways := make([]books, processes)
	for i := range gateways {
		gateways[i] = books{all: make(map[client.ReservationID]*said), calls: make(map[string]call)}
		all.Go(func() { gateways[i].play(t, i, server.Addr, t.TempDir()) })
	}
	all.Wait()
	want, flying := make(map[string]int64), make(map[string]int64)
	for i := range gateways {
		gateways[i].add(t, want, flying)
	}
	conn, err := grpc.NewClient(server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for meter, want := range want {
		units, err := stack.Usage(t.Context(), conn, meter, []string{tenant})
		if err != nil {
			t.Fatal(err)
		}
		got := units[tenant]
		t.Logf("%s: used %d, asked for at a kill %d, ledger %d (%+d)", meter, want, flying[meter], got, got-want)
		if got < want || got > want+flying[meter] {
			t.Errorf("the ledger has %d %s: %d were used, %d were asked for at a kill", got, meter, want, flying[meter])
		}
	}
	most := b.month + processes*streams*spend("large", usage{out: quick.extend})
	if time.Now().UTC().Month() != from.Month() {
		most += b.month
	}
	if got := want["microdollars"]; got > most {
		t.Errorf("%d of the month were spent, want %d at most", got, most)
	}
}

// books is what a gateway process said of its streams, in all its lives.
type books struct {
	all    map[client.ReservationID]*said
	calls  map[string]call // not answered, in this life
	flying []call          // likewise, at the end of lives
	lines  int
	month  bool // it was denied because the month is over
}

// call is what a call asked for.
type call struct {
	usage
	model string
}

// said is what was said of one stream.
type said struct {
	model string
	uses  usage // before the reservation was told
	used  usage // afterwards, or by the next life
	ended bool
	next  bool // the next life said it
}

// play runs a gateway: all lives but the last are killed after some hundred lines. That one ends gracefully once the
// month is over.
func (b *books) play(t *testing.T, number int, target, journal string) {
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(number)))
	for life := range lives {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGateway$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s%s", gatewayEnv, number, target, journal, b.open()))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Error(err)
			return
		}
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		last := life == lives-1
		killAt, over := b.lines+100+rng.IntN(100), false
		for read := bufio.NewScanner(out); read.Scan(); {
			if !b.note(read.Text()) {
				t.Logf("gateway %d: %s", number, read.Text())
				continue
			}
			b.lines++
			switch {
			case over:
			case !last && b.lines >= killAt:
				over, err = true, cmd.Process.Kill()
			case last && b.month:
				over, err = true, cmd.Process.Signal(syscall.SIGTERM)
			}
			if err != nil {
				t.Error(err)
			}
		}
		if err := cmd.Wait(); !over || last && err != nil {
			t.Errorf("gateway %d ended by itself: %v", number, err)
			return
		}
		for _, c := range b.calls {
			b.flying = append(b.flying, c)
		}
		clear(b.calls)
	}
}

// open are the streams that no life said the end of.
func (b *books) open() string {
	var list strings.Builder
	for id, s := range b.all {
		if !s.ended && !s.next {
			fmt.Fprintf(&list, " %d/%d", id.Epoch, id.Number)
		}
	}
	return list.String()
}

// note takes a line of a gateway's; false for one of another's.
func (b *books) note(line string) bool {
	var what, stream, model string
	var id client.ReservationID
	var u usage
	if n, _ := fmt.Sscanf(line, "gateway: %s %s %d/%d %s %d %d", &what, &stream, &id.Epoch, &id.Number, &model, &u.in, &u.out); n < 7 {
		return false
	}
	switch what {
	case "month":
		b.month = true
		return true
	case "asks":
		b.calls[stream] = call{u, model}
		return true
	case "answered":
		delete(b.calls, stream)
		return true
	}
	s := b.all[id]
	if s == nil {
		s = &said{model: model}
		b.all[id] = s
	}
	switch what {
	case "uses":
		s.uses = u
	case "used":
		s.used = u
	case "ended":
		s.ended = true
	case "next":
		s.next = true
		if u != s.used && u != s.uses {
			s.uses = usage{-1, -1} // neither: found out by add
		}
		s.used = u
	}
	return true
}

// add adds what a gateway used, by meter, and what it had asked for when it was killed.
func (b *books) add(t *testing.T, used, flying map[string]int64) {
	add := func(to map[string]int64, model string, u usage) {
		if u.in > 0 {
			to["requests"]++
		}
		to["tokens"] += u.in + u.out
		to["tokens_in"] += u.in
		to["tokens_out"] += u.out
		to["microdollars"] += spend(model, u)
	}
	for _, c := range b.flying {
		add(flying, c.model, c.usage)
	}
	killed := 0
	for id, s := range b.all {
		if s.next {
			killed++
		}
		if s.uses.in < 0 {
			t.Errorf("%v: the next life has %v of it, which nobody said", id, s.used)
		}
		add(used, s.model, s.used)
	}
	t.Logf("%d streams, %d of them under way at a kill", len(b.all), killed)
}

// gatewayEnv has a gateway's number, server and journal, and the streams that were under way when its last life ended.
const gatewayEnv = "QUOTA_TEST_GATEWAY"

// TestGateway is a gateway: callers who ask it without end, until it is killed or told to stop. It says each step of
// each stream on a line, which a kill cannot shorten.
func TestGateway(t *testing.T) {
	words := strings.Fields(os.Getenv(gatewayEnv))
	if len(words) < 3 {
		t.Skip("TestKilledGateways starts it")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	c, err := client.Dial(ctx, words[1], client.WithAgent("gateway-"+words[0]), client.WithJournal(words[2]),
		client.WithFirstWait(time.Minute), client.WithCloseWait(time.Minute), client.WithReportInterval(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words[3:] {
		var id client.ReservationID
		if _, err := fmt.Sscanf(word, "%d/%d", &id.Epoch, &id.Number); err != nil {
			t.Fatal(err)
		}
		r, ok := c.Reservation(id)
		if !ok {
			t.Fatalf("%s is not known", word)
		}
		u := usage{}
		_, costs := r.Totals()
		for _, of := range costs {
			switch of.Name {
			case "tokens_in":
				u.in = of.Units
			case "tokens_out":
				u.out = of.Units
			}
		}
		(&line{id: id, model: "-"}).say("next", u)
	}
	var all sync.WaitGroup
	for i := range uint64(streams) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(os.Getpid()), i))
			for ctx.Err() == nil {
				q := draw(rng)
				relay(ctx, c, &quick, q, rng, &line{ctx: ctx, stream: i, model: q.model})
			}
		})
	}
	all.Wait()
	if err := c.Close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

// line says on standard output what becomes of a stream.
type line struct {
	ctx    context.Context
	stream uint64
	id     client.ReservationID
	model  string
	last   usage
}

func (l *line) say(what string, u usage) {
	fmt.Printf("gateway: %s %d %d/%d %s %d %d\n", what, l.stream, l.id.Epoch, l.id.Number, l.model, u.in, u.out)
}

func (l *line) asks(u usage)                   { l.say("asks", u) }
func (l *line) answered()                      { l.say("answered", usage{}) }
func (l *line) begins(id client.ReservationID) { l.id = id }
func (l *line) uses(u usage)                   { l.last = u; l.say("uses", u) }
func (l *line) used(u usage)                   { l.say("used", u) }
func (l *line) ends(bool)                      { l.say("ended", l.last) }

func (l *line) denied(d client.Decision) {
	if d.Limit() == "month" {
		l.say("month", usage{})
	}
	select { // a caller comes again
	case <-time.After(20 * time.Millisecond):
	case <-l.ctx.Done():
	}
}
