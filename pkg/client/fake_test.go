package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/memstore"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// fake is a quota server with one central bucket for each key and a ledger of
// rows: simple enough to be right at sight.
type fake struct {
	quotav1.UnimplementedLeaseServiceServer
	t       testing.TB
	lis     *bufconn.Listener
	srv     *grpc.Server
	dialing bubbled.Dialing

	mu       sync.Mutex
	policy   *limit.Policy
	shadow   *limit.Policy // tried beside it
	tenants  map[string]limit.Tenant
	switches limit.Switches
	change   int64
	forgot   int64 // leases granted before may be forgotten
	watchers map[chan *quotav1.WatchResponse]bool
	chunk    int64 // tokens granted beyond those waited for
	ttl      time.Duration
	buckets  map[string]*central
	asked    map[string]int // tenants
	agents   int32          // that it says there are
	// leases answers renewals instead of the central buckets, if not nil.
	leases   *memstore.Store
	renews   int
	renewals int
	finals   int

	// Faults.
	down      bool                 // every call fails
	dark      bool                 // the lease store cannot answer
	darkOnce  bool                 // it cannot answer one renewal
	wrong     error                // refuses each renewal as one that breaks a bound
	answers   quotav1.Grant_Status // of each renewal, instead of a lease, if not 0
	blank     bool                 // tenants cannot be resolved
	loseRenew int                  // this many Renew replies are lost after execution
	loseTell  int                  // likewise of Settle
	ledgerOff bool                 // the ledger is away
	arrived   func(epoch int64)    // is told when reports arrive; nil for nobody
	twice     bool                 // every Settle is executed twice
	verdict   ledger.Status        // instead of settling, if not 0
	said      string               // beside the verdict
	delay     time.Duration
	work      time.Duration // of each renewal, one after the other
	busy      time.Time     // until then it works
	hangs     int           // every so many Renew calls one is not answered; 0 for none
	calls     int           // of Renew that came
	strain    int32         // as the last of them said
	trickle   int64         // of each lease, micro-units a second, beyond what it counts
	voids     []int64       // how long ago was void what they told of, microseconds
	twins     bool          // a report may come with another digest

	// The ledger.
	name     string          // as its answers say
	foreign  string          // agent that the key does not speak for
	mute     bool            // it takes reports, and cannot be asked how far it is
	older    bool            // the server does not know of Frontiers
	asks     int             // Frontiers calls
	seq      map[int64]int64 // by epoch
	total    map[int64]int64
	digest   map[string][32]byte
	rows     map[ledger.Row]ledger.Row
	unsealed int64 // units in quarantine, which no journal vouches for
	closed   map[int64]bool
	ends     map[int64]ended // epochs that others go on from
	upto     int64
}

type ended struct{ next, total int64 }

type central struct {
	avail   float64
	last    time.Time
	number  map[string]int64
	granted map[string]int64 // outstanding, as recorded
	spent   map[string]int64 // admitted as told
	out     int64            // all that was ever granted, less what came back
	has     map[string]int64 // slots of each holder
}

func newFake(t testing.TB, p *limit.Policy) *fake {
	f := &fake{
		t: t, policy: p, tenants: make(map[string]limit.Tenant), watchers: make(map[chan *quotav1.WatchResponse]bool),
		chunk: 10, ttl: time.Second / 2, buckets: make(map[string]*central), asked: make(map[string]int),
		seq: make(map[int64]int64), total: make(map[int64]int64), digest: make(map[string][32]byte),
		rows: make(map[ledger.Row]ledger.Row), closed: make(map[int64]bool), ends: make(map[int64]ended), name: "one",
		dialing: bubbled.NewDialing(),
	}
	f.start()
	return f
}

func (f *fake) start() {
	f.lis = bufconn.Listen(1 << 20)
	f.srv = grpc.NewServer(grpc.WaitForHandlers(true))
	quotav1.RegisterLeaseServiceServer(f.srv, f)
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(f.srv, f.lis)
}

func (f *fake) stop() {
	f.mu.Lock()
	s := f.srv
	f.mu.Unlock()
	s.Stop()
}

// restart kills the server and starts another with what the first one knew.
func (f *fake) restart() {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start()
}

func (f *fake) dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	l := f.lis
	f.mu.Unlock()
	return f.dialing.Dial(ctx, l)
}

func (f *fake) set(g func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g(f)
}

var errDown = status.Error(codes.Unavailable, "down")

func (f *fake) rules(p *limit.Policy, tenant, name string) *limit.Limit {
	if p == nil {
		return nil
	}
	find := func(limits []limit.Limit) *limit.Limit {
		for i := range limits {
			if limits[i].Name == name {
				return &limits[i]
			}
		}
		return nil
	}
	if tenant == "" {
		return find(p.Limits)
	}
	limits, _ := p.TenantLimits(f.tenants[tenant])
	return find(limits)
}

func (f *fake) Renew(ctx context.Context, req *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	if err := wire.CheckRenew(req); err != nil {
		f.t.Errorf("a request breaks a bound: %v", err)
	}
	f.mu.Lock()
	f.calls++
	delay := f.delay
	if f.hangs > 0 && f.calls%f.hangs == 0 {
		delay = time.Hour
	}
	if f.work > 0 {
		f.busy = time.Now().Add(max(time.Until(f.busy), 0) + time.Duration(len(req.Renewals))*f.work)
		delay += time.Until(f.busy)
	}
	f.mu.Unlock()
	if delay > 0 {
		select { // a slow network, in the bubble's time
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errDown
	}
	f.renews++
	f.strain = req.Strain
	resp := &quotav1.RenewResponse{PolicyVersion: f.policy.Version, Agents: f.agents}
	once := make(map[string]bool)
	for _, r := range req.Renewals {
		f.renewals++
		if r.Void > 0 {
			f.voids = append(f.voids, r.VoidAgoUs)
		}
		if of := fmt.Sprint(r.Limit, r.Tenant, r.Values, r.Kind, r.Shadow); once[of] {
			f.t.Errorf("a call has two renewals of %s", of)
		} else {
			once[of] = true
		}
		if err := wire.CheckRenewal(r); err != nil {
			f.t.Errorf("a renewal breaks a bound: %v", err)
		}
		if f.wrong != nil {
			resp.Grants = append(resp.Grants, wire.RefusedToProto(r, f.wrong, f.policy.Version))
			continue
		}
		resp.Grants = append(resp.Grants, f.renew(req.Agent, r))
	}
	for _, id := range req.Tenants {
		f.asked[id]++
		t, ok := f.tenants[id]
		if !ok {
			t = limit.Tenant{ID: id}
		}
		if f.blank || id == "faulty" {
			t = limit.Tenant{}
		}
		resp.Tenants = append(resp.Tenants, wire.TenantToProto(t))
	}
	if f.loseRenew > 0 {
		f.loseRenew--
		return nil, errDown
	}
	return resp, nil
}

func (f *fake) renew(agent string, r *quotav1.Renewal) *quotav1.Grant {
	g := &quotav1.Grant{Number: r.Number, Status: quotav1.Grant_STATUS_GRANTED, PolicyVersion: f.policy.Version}
	l, name := f.rules(f.policy, r.Tenant, r.Limit), r.Limit
	if r.Shadow {
		l, name = f.rules(f.shadow, r.Tenant, r.Limit), name+"+shadow"
	}
	if r.Kind == quotav1.Renewal_KIND_OVERAGE && l != nil {
		o := l.Overage()
		l, name = &o, name+"+overage"
	}
	switch {
	case f.dark, f.darkOnce:
		f.darkOnce = false
		g.Status = quotav1.Grant_STATUS_UNAVAILABLE
		return g
	case f.answers != 0:
		g.Status = f.answers
		return g
	case l == nil || len(l.By) != len(r.Values) || l.CountsOnly():
		g.Status = quotav1.Grant_STATUS_UNKNOWN
		return g
	}
	if f.leases != nil {
		return f.lease(agent, name, l, r)
	}
	key := name + "|" + r.Tenant + "|" + strings.Join(r.Values, "|")
	now := time.Now()
	c := f.buckets[key]
	if c == nil {
		c = &central{avail: float64(l.Burst), last: now, number: make(map[string]int64), granted: make(map[string]int64), spent: make(map[string]int64)}
		f.buckets[key] = c
	}
	c.avail = min(c.avail+now.Sub(c.last).Seconds()*float64(l.Rate.Units)/l.Rate.Per.Seconds(), float64(l.Burst))
	c.last = now
	if r.Number <= c.number[agent] {
		g.Status = quotav1.Grant_STATUS_STALE
		return g
	}
	c.number[agent] = r.Number
	if r.Final {
		f.finals++
	}
	if l.Slots > 0 {
		return f.renewSlots(c, l, agent, r, g)
	}
	// What the agent has still is its own again; the rest of what is out was spent, or is lost with a reply.
	back := min(r.Held, c.granted[agent])
	c.avail += float64(back)
	c.out -= back
	c.granted[agent] = 0
	c.spent[agent] = r.Admitted
	if !r.Final {
		g.Tokens = min(int64(c.avail), r.Waiting+f.chunk)
		c.avail -= float64(g.Tokens)
		c.granted[agent] = g.Tokens
		c.out += g.Tokens
		g.TtlMs, g.TrickleMicrosPerS, g.Pile = f.ttl.Milliseconds(), f.trickle, min(f.trickle, 1)
		if g.Tokens == 0 {
			g.DenyForMs = 100
		}
		g.Remaining = int64(c.avail) + max(g.Tokens-r.Waiting, 0) // as a lease store has it
		g.ResetMs = 1000
	}
	return g
}

// renewSlots shares out slots: what is in use stays, and spare ones go to who asks.
func (f *fake) renewSlots(c *central, l *limit.Limit, agent string, r *quotav1.Renewal, g *quotav1.Grant) *quotav1.Grant {
	if c.has == nil {
		c.has = make(map[string]int64)
	}
	level := l.Slots
	for holder, n := range c.has {
		if holder != agent {
			level -= n
		}
	}
	level -= r.InUse
	if !r.Final {
		g.Tokens = min(max(level, 0), r.Waiting+f.chunk)
		g.Pile = f.chunk
		g.TtlMs = f.ttl.Milliseconds()
		if g.Tokens < r.Waiting || g.Tokens == 0 {
			g.DenyForMs = 20
		}
	}
	c.has[agent] = r.InUse + g.Tokens
	g.Remaining, g.ResetMs = max(level-g.Tokens, 0), 1000
	return g
}

// lease answers as a server does, from a lease store in the bubble's time.
func (f *fake) lease(agent, name string, l *limit.Limit, r *quotav1.Renewal) *quotav1.Grant {
	rule, err := limit.Compile(*l)
	if err != nil {
		f.t.Fatal(err)
	}
	now := time.Now()
	q := wire.RenewalFromProto(r)
	q.Key, q.Holder, q.Now = name+"|"+r.Tenant+"|"+strings.Join(r.Values, "|"), agent, now.UnixMicro()
	q.Spec = lease.Spec{
		Algorithm: l.Algorithm, Units: max(l.Rate.Units, l.Slots), Period: l.Rate.Per.Microseconds(), Burst: l.Burst, EpsilonPPM: l.EpsilonPPM,
		Borrow: l.Borrow, Lockout: l.Lockout.Microseconds(),
	}
	if l.Algorithm.Windowed() {
		start, end := rule.Window(now)
		_, next := rule.Window(end)
		q.Spec.WindowStart, q.Spec.WindowEnd, q.Spec.NextWindowEnd = start.UnixMicro(), end.UnixMicro(), next.UnixMicro()
	}
	a := f.leases.Renew(context.Background(), []lease.Renewal{q})[0]
	if a.Err != nil {
		f.t.Errorf("%s: %v", q.Key, a.Err)
		a.Grant.Number = q.Number
	}
	return wire.GrantToProto(a, f.policy.Version)
}

func (f *fake) Watch(req *quotav1.WatchRequest, s quotav1.LeaseService_WatchServer) error {
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		return errDown
	}
	ch := make(chan *quotav1.WatchResponse, 64)
	f.watchers[ch] = true
	first := &quotav1.WatchResponse{TenantChange: f.change, Switches: wire.SwitchesToProto(f.switches), RefreshTenants: req.TenantChange != f.change, ForgotBeforeUs: f.forgot, Agents: f.agents}
	if req.PolicyVersion != f.policy.Version {
		first.Policy = wire.PolicyToProto(f.policy)
	}
	f.mu.Unlock()
	defer f.set(func(f *fake) { delete(f.watchers, ch) })
	if err := s.Send(first); err != nil {
		return err
	}
	for {
		select {
		case m := <-ch:
			if err := s.Send(m); err != nil {
				return err
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (f *fake) push(m *quotav1.WatchResponse) {
	for ch := range f.watchers {
		ch <- m
	}
}

func (f *fake) apply(p *limit.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = p
	f.push(&quotav1.WatchResponse{Policy: wire.PolicyToProto(p)})
}

// forget says that leases granted before may be forgotten.
func (f *fake) forget(before int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot = before
	f.push(&quotav1.WatchResponse{ForgotBeforeUs: before})
}

// try puts a policy beside the one in force; nil for none.
func (f *fake) try(p *limit.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shadow = p
	m := &quotav1.Policy{}
	if p != nil {
		m = wire.PolicyToProto(p)
	}
	f.push(&quotav1.WatchResponse{Shadow: m})
}

func (f *fake) tenant(t limit.Tenant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change++
	t.Exists, t.Revision = true, f.change
	f.tenants[t.ID] = t
	f.push(&quotav1.WatchResponse{Tenants: []*quotav1.Tenant{wire.TenantToProto(t)}, TenantChange: f.change})
}

func (f *fake) flip(s limit.Switches) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.switches = s
	f.push(&quotav1.WatchResponse{Switches: wire.SwitchesToProto(s)})
}

func (f *fake) Settle(_ context.Context, req *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	if err := wire.CheckSettle(req); err != nil {
		f.t.Errorf("a settlement breaks a bound: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arrived != nil {
		f.arrived(req.Reports[0].Epoch)
	}
	if f.down || f.ledgerOff {
		return nil, errDown
	}
	resp := &quotav1.SettleResponse{}
	if !f.older {
		resp.Ledger = f.name
	}
	for range 1 + map[bool]int{true: 1}[f.twice] {
		resp.Receipts = nil
		for _, p := range req.Reports {
			r, err := wire.ReportFromProto(p)
			if err != nil {
				return nil, status.Error(codes.InvalidArgument, err.Error())
			}
			resp.Receipts = append(resp.Receipts, wire.ReceiptToProto(f.settle(r)))
		}
	}
	if f.loseTell > 0 {
		f.loseTell--
		return nil, errDown
	}
	return resp, nil
}

func (f *fake) Frontiers(_ context.Context, req *quotav1.FrontiersRequest) (*quotav1.FrontiersResponse, error) {
	if err := wire.CheckFrontiers(req); err != nil {
		f.t.Errorf("a question breaks a bound: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.foreign == req.Agent:
		return nil, status.Error(codes.PermissionDenied, "not yours")
	case f.older:
		return nil, status.Error(codes.Unimplemented, "no such method")
	case f.down || f.ledgerOff || f.mute:
		return nil, errDown
	}
	f.asks++
	resp := &quotav1.FrontiersResponse{Ledger: f.name}
	for _, e := range req.Epochs {
		p := &quotav1.Frontier{Epoch: e, Seq: f.seq[e], Total: f.total[e]}
		if digest := f.digest[fmt.Sprint(req.Agent, e, p.Seq)]; p.Seq > 0 {
			p.Digest = digest[:]
		}
		resp.Frontiers = append(resp.Frontiers, p)
	}
	return resp, nil
}

// backup returns what puts the ledger back to what it is now, under another name, or under its own where none is given.
func (f *fake) backup() (restore func(name string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq, total, digest, rows, closed, ends := maps.Clone(f.seq), maps.Clone(f.total), maps.Clone(f.digest), maps.Clone(f.rows), maps.Clone(f.closed), maps.Clone(f.ends)
	return func(name string) {
		f.set(func(f *fake) {
			f.seq, f.total, f.digest = maps.Clone(seq), maps.Clone(total), maps.Clone(digest)
			f.rows, f.closed, f.ends, f.name = maps.Clone(rows), maps.Clone(closed), maps.Clone(ends), cmp.Or(name, f.name)
		})
	}
}

func (f *fake) settle(r ledger.Report) ledger.Receipt {
	if err := r.Check(); err != nil {
		f.t.Errorf("a report is not valid: %v", err)
	}
	next := f.seq[r.Epoch] + 1
	id := fmt.Sprint(r.Agent, r.Epoch, r.Seq)
	out := ledger.Receipt{NextSeq: next, Total: f.total[r.Epoch]}
	switch {
	case f.verdict != 0:
		out.Status, out.Message = f.verdict, f.said
		if f.verdict == ledger.Fenced || f.verdict == ledger.Rejected {
			f.closed[r.Epoch] = true
			f.verdict = 0
		}
		return out
	case r.Seq < next:
		out.Status = ledger.Already
		if f.digest[id] != r.Digest {
			out.Status = ledger.Fenced
			if !f.twins {
				f.t.Errorf("report %s came with another digest", id)
			}
		}
		return out
	case f.closed[r.Epoch]:
		out.Status = ledger.Fenced
		return out
	case r.Seq > next:
		out.Status = ledger.Ahead
		return out
	case f.ends[r.Epoch].next != 0 && r.After > f.ends[r.Epoch].total:
		out.Status = ledger.Fenced
		return out
	case r.Before != f.total[r.Epoch]:
		f.t.Errorf("report %s begins at %d, want %d", id, r.Before, f.total[r.Epoch])
	}
	if o := r.Origin; o.Epoch != 0 {
		on := ended{r.Epoch, o.Total}
		if has := f.ends[o.Epoch]; has != (ended{}) && has != on || f.total[o.Epoch] > o.Total {
			f.closed[r.Epoch] = true
			out.Status = ledger.Fenced
			return out
		}
		f.ends[o.Epoch] = on
	}
	rows, _ := ledger.DecodeRows(r.Payload)
	if r.Unsealed {
		f.unsealed += r.After - r.Before
		rows = nil
	}
	for _, row := range rows {
		k := row.Key()
		sum, ok := f.rows[k]
		if !ok {
			sum = k
		}
		sum.Admitted += row.Admitted
		sum.Overage += row.Overage
		sum.Denied += row.Denied
		f.rows[k] = sum
	}
	f.seq[r.Epoch], f.total[r.Epoch], f.digest[id] = r.Seq, r.After, r.Digest
	f.closed[r.Epoch] = r.Closed
	f.upto = max(f.upto, r.Through)
	out.Status = ledger.Settled
	return out
}

// billed sums the admitted units of the rows that match.
func (f *fake) billed(match func(ledger.Row) bool) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum int64
	for _, r := range f.rows {
		if match == nil || match(r) {
			sum += r.Admitted
		}
	}
	return sum
}

// allRows returns the ledger's rows in order.
func (f *fake) allRows() []ledger.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.rows), func(a, b ledger.Row) int { return a.CompareKey(&b) })
}

// spent returns what a bucket handed out for good.
func (f *fake) spent(key string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.buckets[key]; c != nil {
		return c.out
	}
	return 0
}
