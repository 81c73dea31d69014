package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	randv2 "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/engines"
	"github.com/f4ee788f/quota/loadtest/chaos/clock"
	"github.com/f4ee788f/quota/loadtest/chaos/proxy"
	"github.com/f4ee788f/quota/loadtest/stack"
	"github.com/f4ee788f/quota/migrations"
)

const (
	gateways = 4
	servers  = 2               // at the begin; one more is added under load
	nodes    = 2 * 3           // of Redis
	startUp  = 2 * time.Minute // bounds engines and programs to begin
	undo     = time.Minute     // bounds taking one fault back
	report   = "1s"            // how often gateways report usage
	fold     = "1s"            // how often servers fold
	module   = "github.com/f4ee788f/quota"
	ledgerDB = "postgres"
)

// site is everything that runs.
type site struct {
	o     options
	out   io.Writer
	began time.Time
	dir   string
	bin   string

	library  string // of programs in C with a clock; empty where it cannot be made
	offset   time.Duration
	redis    *engines.RedisCluster
	postgres *engines.Postgres
	pgClock  clock.Clock
	wentBack bool // the ledger did; of the lane of Postgres, and who comes after it
	servers  []*server
	conn     *grpc.ClientConn // to the first server, past all proxies

	mu        sync.Mutex
	members   []*member
	exposures []exposure
	counts    map[string]int
	off       map[string]time.Duration // of the clock of a Redis node, by name, at its next start
	faults    int
	errs      []error
}

// server is one quota-server and what stands around it.
type server struct {
	name       string
	grpc, http string
	clock      clock.Clock
	postgres   *proxy.Link
	gaps       *proxy.Gaps
	relay      *proxy.Relay

	unit engines.Unit
}

// member is one agent: a gateway with the client linked, or a quota-agent and the gateway
// that asks it.
type member struct {
	id      string
	clock   clock.Clock
	links   []*proxy.Link // to each server
	sidecar bool
	http    string       // of a quota-agent
	door    engines.Unit // the gateway of a quota-agent; it is not killed
	demand  string

	mu    sync.Mutex // held while something is done to it
	unit  engines.Unit
	lives []life
}

// life is one process of a member, in Unix microseconds.
type life struct {
	from, to int64 // to is 0 while it runs
	trail    string
}

// exposure is a time in which more may be admitted than the bound, as documented.
type exposure struct {
	why      string
	from, to time.Time
}

// dataLost is the exposure after Redis lost what it had told.
const dataLost = "data lost"

// say prints one line about an event, with the time since the begin.
func (s *site) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%7.3f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// fail notes an error; the run ends with it.
func (s *site) fail(err error) {
	s.say("WRONG: %v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// wrong is the errors noted so far.
func (s *site) wrong() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

func (s *site) count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name]++
	s.faults++
}

// tally says how often each fault was done.
func (s *site) tally() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, f := range allFaults {
		if n := s.counts[f.name]; n > 0 {
			list = append(list, fmt.Sprintf("%s=%d", f.name, n))
		}
	}
	return strings.Join(list, " ")
}

func (s *site) done() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// expose notes that a bound may be exceeded from now on. The returned function ends that.
func (s *site) expose(why string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.exposures)
	s.exposures = append(s.exposures, exposure{why: why, from: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.exposures[i].to = time.Now()
	}
}

func (s *site) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// until asks again and again.
func (s *site) until(ctx context.Context, what string, ok func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// begin builds and starts everything, and returns when all gateways decide.
func begin(ctx context.Context, o options, out io.Writer) (*site, error) {
	s := &site{o: o, out: out, began: time.Now(), counts: make(map[string]int), off: make(map[string]time.Duration)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

func (s *site) start(ctx context.Context) (err error) {
	if s.dir, err = engines.TempDir("chaos"); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	s.began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	if s.o.monthEnd {
		s.offset = monthEnd(time.Now().Add(calm + s.o.load/2 + 12*time.Second))
		s.say("clocks: all %v ahead, so that a month ends in the middle", s.offset)
	}
	if err := s.startEngines(ctx); err != nil {
		return err
	}
	password := rand.Text()
	if err := migrations.Postgres(ctx, s.postgres.URL(ledgerDB, "", ""), migrations.AppPassword(password)); err != nil {
		return err
	}
	for i := range servers + 1 {
		v, err := s.newServer(i, s.postgres.URL(ledgerDB, migrations.AppRole, password))
		if err != nil {
			return err
		}
		s.servers = append(s.servers, v)
	}
	for _, v := range s.servers[:servers] {
		if err := s.startServer(ctx, v); err != nil {
			return err
		}
	}
	if s.conn, err = grpc.NewClient(s.servers[0].grpc, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	if err := stack.Apply(ctx, s.conn, document()); err != nil {
		return err
	}
	for _, v := range s.servers[:servers] {
		if err := s.ready(ctx, v); err != nil {
			return err
		}
	}
	for i := range gateways {
		if err := s.addGateway(ctx, fmt.Sprintf("gateway-%d", i), 1); err != nil {
			return err
		}
	}
	if err := s.addSidecar(ctx, "sidecar-0"); err != nil {
		return err
	}
	s.say("site: %d servers, %d gateways, a quota-agent with its gateway, %d Redis nodes, a Postgres", servers, gateways, nodes)
	return nil
}

// monthEnd is how far ahead a clock must be for a month to end at that time.
func monthEnd(at time.Time) time.Duration {
	at = at.UTC().Truncate(10 * time.Second) // windows of ten seconds stay where they are
	return time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(at)
}

// build builds the programs. Those whose clocks are set get an overlay of package time.
func (s *site) build(ctx context.Context) error {
	begin := time.Now()
	s.bin = filepath.Join(s.dir, "bin")
	tools := filepath.Join(s.dir, "clock")
	for _, d := range []string{s.bin, tools} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	overlay, err := clock.Overlay(ctx, tools)
	if err != nil {
		return err
	}
	if s.library, err = clock.Library(ctx, tools); err != nil {
		fmt.Fprintf(s.out, "engines have the machine's clock: %v\n", err)
	}
	if s.o.monthEnd && s.library == "" {
		return errors.New("a month's end needs a clock for the engines")
	}
	plain, set := []string{"cmd/quota-server", "cmd/quota-agent"}, []string{"loadtest/chaos/gateway"}
	if s.o.monthEnd {
		plain, set = nil, append(set, plain...)
	}
	for _, b := range []struct {
		flags    []string
		programs []string
	}{{nil, plain}, {[]string{"-overlay", overlay}, set}} {
		if len(b.programs) == 0 {
			continue
		}
		args := append([]string{"build", "-o", s.bin + string(filepath.Separator)}, b.flags...)
		for _, p := range b.programs {
			args = append(args, module+"/"+p)
		}
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	fmt.Fprintf(s.out, "programs built in %.0f s\n", time.Since(begin).Seconds())
	return nil
}

func (s *site) startEngines(ctx context.Context) error {
	redisDir, postgresDir := filepath.Join(s.dir, "redis"), filepath.Join(s.dir, "postgres")
	for _, d := range []string{redisDir, postgresDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	launch := func(ctx context.Context, c engines.Command) (engines.Unit, error) {
		if s.library != "" {
			k, err := clock.New(filepath.Join(s.dir, c.Name+".clock"))
			if err != nil {
				return nil, err
			}
			s.mu.Lock()
			off := s.off[c.Name]
			s.mu.Unlock()
			if err := k.Set(s.offset + off); err != nil {
				return nil, err
			}
			c.Env = append(c.Env, k.EnvC(s.library)...)
		}
		return engines.Start(ctx, c)
	}
	var err error
	if s.redis, err = engines.StartRedisCluster(ctx, redisDir, engines.RedisOptions{Launch: launch}); err != nil {
		return err
	}
	o := engines.PostgresOptions{Durable: true}
	if s.library != "" {
		if s.pgClock, err = clock.New(filepath.Join(s.dir, "postgres.clock")); err != nil {
			return err
		}
		if err := s.pgClock.Set(s.offset); err != nil {
			return err
		}
		o.Env = s.pgClock.EnvC(s.library)
	}
	s.postgres, err = engines.StartPostgres(ctx, postgresDir, o)
	return err
}

// port finds a free address below the ports of outgoing connections, so that none takes it while its server is down.
func port() (string, error) {
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12000+randv2.IntN(7000))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no free port")
}

func (s *site) newServer(i int, ledger string) (*server, error) {
	v := &server{name: fmt.Sprintf("server-%d", i), gaps: &proxy.Gaps{}}
	var err error
	if v.grpc, err = port(); err != nil {
		return nil, err
	}
	if v.http, err = port(); err != nil {
		return nil, err
	}
	if v.clock, err = clock.New(filepath.Join(s.dir, v.name+".clock")); err != nil {
		return nil, err
	}
	if err := v.clock.Set(s.offset); err != nil {
		return nil, err
	}
	u, err := url.Parse(ledger)
	if err != nil {
		return nil, err
	}
	if v.postgres, err = proxy.NewLink(u.Host, v.gaps.Tap); err != nil {
		return nil, err
	}
	if v.relay, err = proxy.NewRelay(v.grpc); err != nil {
		return nil, err
	}
	switch s.o.control {
	case "twice":
		v.relay.Do(proxy.SettleTwice)
	case "never":
		v.relay.Do(proxy.SettleNever)
	}
	u.Host = v.postgres.Addr()
	// The password is in a file, not in the arguments that everybody can list.
	config := fmt.Sprintf("ledger %s\nlease-store redis://%s\ngrpc-addr %s\nhttp-addr %s\nfold-interval %s\n",
		u, strings.Join(s.redis.Addrs(), ","), v.grpc, v.http, fold)
	return v, os.WriteFile(filepath.Join(s.dir, v.name+".conf"), []byte(config), 0o600)
}

func (s *site) startServer(ctx context.Context, v *server) (err error) {
	v.unit, err = engines.Start(ctx, engines.Command{
		Name: v.name, Path: filepath.Join(s.bin, "quota-server"), Dir: s.dir, Quit: syscall.SIGTERM,
		Args: []string{"--config", v.name + ".conf"}, Env: v.clock.Env(),
	})
	return err
}

// ready waits for a server, or a quota-agent, that says so itself.
func (s *site) ready(ctx context.Context, v *server) error {
	return s.until(ctx, v.name+" is ready", func() bool { return answers(ctx, "http://"+v.http+"/readyz") })
}

func answers(ctx context.Context, url string) bool {
	asker := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := asker.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // only the status matters
	return answer.StatusCode == http.StatusOK
}

// join makes a member with its links to every server, including the one to come.
func (s *site) join(id string) (*member, error) {
	m := &member{id: id}
	var err error
	if m.clock, err = clock.New(filepath.Join(s.dir, id+".clock")); err != nil {
		return nil, err
	}
	if err := m.clock.Set(s.offset); err != nil {
		return nil, err
	}
	for _, v := range s.servers {
		to := v.grpc
		if s.o.control == "twice" || s.o.control == "never" {
			to = v.relay.Addr()
		}
		l, err := proxy.NewLink(to, nil)
		if err != nil {
			return nil, err
		}
		m.links = append(m.links, l)
	}
	return m, nil
}

// targets are the servers as the member reaches them, in an order of its own.
func (s *site) targets(m *member) string {
	var list []string
	for _, l := range m.links {
		list = append(list, l.Addr())
	}
	return strings.Join(list, ",")
}

// addGateway starts a gateway that asks for a share of each gateway's demand.
func (s *site) addGateway(ctx context.Context, id string, share float64) error {
	m, err := s.join(id)
	if err != nil {
		return err
	}
	m.demand = demands(share)
	if err := s.startMember(ctx, m); err != nil {
		return err
	}
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	return s.up(ctx, m)
}

// addSidecar starts a quota-agent and the gateway that asks it.
func (s *site) addSidecar(ctx context.Context, id string) error {
	m, err := s.join(id)
	if err != nil {
		return err
	}
	m.sidecar = true
	if m.http, err = port(); err != nil {
		return err
	}
	if err := s.startMember(ctx, m); err != nil {
		return err
	}
	if err := s.up(ctx, m); err != nil {
		return err
	}
	m.door, err = engines.Start(ctx, engines.Command{
		Name: id + "-door", Path: filepath.Join(s.bin, "gateway"), Dir: s.dir, Quit: syscall.SIGTERM,
		Args: []string{"--check", "http://" + m.http + "/check", "--agent", id, "--demand", demands(0.25), "--trail", id + ".trail"},
	})
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	return err
}

// startMember begins a life of a member.
func (s *site) startMember(ctx context.Context, m *member) (err error) {
	c := engines.Command{Name: fmt.Sprintf("%s.%d", m.id, len(m.lives)), Dir: s.dir, Quit: syscall.SIGTERM, Env: m.clock.Env()}
	l := life{from: time.Now().UnixMicro(), trail: c.Name + ".trail"}
	if m.sidecar {
		l.trail = m.id + ".trail" // one, written by the gateway that asks
		c.Path = filepath.Join(s.bin, "quota-agent")
		c.Args = []string{"--server", s.targets(m), "--agent-id", m.id, "--http-addr", m.http, "--grpc-addr", "", "--close-wait", "30s"}
	} else {
		c.Path = filepath.Join(s.bin, "gateway")
		c.Args = []string{"--server", s.targets(m), "--agent", m.id, "--demand", m.demand, "--trail", l.trail, "--report", report}
	}
	if s.o.control != "forget" {
		c.Args = append(c.Args, "--journal", m.id+".journal")
	}
	if m.unit, err = engines.Start(ctx, c); err != nil {
		return err
	}
	m.lives = append(m.lives, l)
	return nil
}

// up waits until a member decides.
func (s *site) up(ctx context.Context, m *member) error {
	if m.sidecar {
		return s.until(ctx, m.id+" answers", func() bool { return answers(ctx, "http://"+m.http+"/healthz") })
	}
	return s.until(ctx, m.id+" is up", func() bool { return strings.Contains(m.unit.Log(), "up "+m.id) || m.unit.Exited() })
}

// every is the members there are now.
func (s *site) every() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.members)
}

// heal undoes all remaining faults, and returns when everything runs and is ready.
func (s *site) heal(ctx context.Context) error {
	for _, m := range s.every() {
		for _, l := range m.links {
			l.Heal()
		}
	}
	if err := s.postgres.Start(ctx); err != nil {
		return err
	}
	for _, v := range s.servers {
		v.gaps.Disarm()
		v.postgres.Heal()
		if v.unit != nil && v.unit.Exited() {
			return fmt.Errorf("%s has ended by itself: %s", v.name, v.unit.Log())
		}
	}
	if err := s.redis.WaitHealthy(ctx); err != nil {
		return err
	}
	for _, v := range s.servers {
		if v.unit == nil {
			continue
		}
		if err := s.ready(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// closeGateways ends every gateway as an operator does. By then its units must be settled.
func (s *site) closeGateways(ctx context.Context) error {
	all := s.every()
	for _, m := range all { // who asks first, then who is asked
		if m.door != nil {
			if err := m.door.Quit(ctx); err != nil {
				return err
			}
		}
	}
	errs := make([]error, len(all))
	var ending sync.WaitGroup
	for i, m := range all {
		ending.Go(func() {
			if m.unit.Exited() {
				errs[i] = fmt.Errorf("%s has ended by itself: %s", m.id, m.unit.Log())
				return
			}
			if errs[i] = m.unit.Quit(ctx); errs[i] == nil && strings.Contains(m.unit.Log(), "not settled") {
				errs[i] = fmt.Errorf("%s: %s", m.id, m.unit.Log())
			}
		})
	}
	ending.Wait()
	return errors.Join(errs...)
}

// end stops everything that still runs.
func (s *site) end() error {
	var errs []error
	for _, m := range s.every() {
		for _, u := range []engines.Unit{m.unit, m.door} {
			if u != nil {
				errs = append(errs, u.Kill())
			}
		}
		for _, l := range m.links {
			errs = append(errs, l.Close())
		}
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, v := range s.servers {
		if v.unit != nil {
			errs = append(errs, v.unit.Kill())
		}
		errs = append(errs, v.postgres.Close(), v.relay.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Stop())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	if s.o.keep {
		fmt.Fprintf(s.out, "files: %s\n", s.kept())
	}
	return errors.Join(append(errs, engines.RemoveTempDirs())...)
}

// kept moves the files to where they stay.
func (s *site) kept() string {
	to, err := os.MkdirTemp("", "quota-chaos-")
	if err == nil {
		err = os.CopyFS(filepath.Join(to, "run"), os.DirFS(s.dir))
	}
	if err != nil {
		return err.Error()
	}
	return to
}
