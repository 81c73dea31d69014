package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// A way is one of those that a report arrives in more than once. It returns an
// error when that was settled more than once, or not at all.
type way struct {
	name  string
	check func(ctx context.Context, a, b ledger.Store, clock *Clock) error
}

var ways = []way{
	{"sent twice", func(ctx context.Context, a, _ ledger.Store, clock *Clock) error {
		g := agent{id: "twice"}
		r := g.report(clock.Now(), row(clock.Now(), "twice", 12))
		return errors.Join(
			wantStatus(ctx, a, r, ledger.Settled),
			wantStatus(ctx, a, r, ledger.Already),
			wantTotal(ctx, a, "twice", 12))
	}},
	{"twice in one call", func(ctx context.Context, a, _ ledger.Store, clock *Clock) error {
		g := agent{id: "call"}
		r := g.report(clock.Now(), row(clock.Now(), "call", 12))
		receipts, err := a.Settle(ctx, []ledger.Report{r, r})
		if err != nil {
			return err
		}
		if receipts[0].Status != ledger.Settled || receipts[1].Status != ledger.Already {
			return fmt.Errorf("got %s and %s", statusName(receipts[0].Status), statusName(receipts[1].Status))
		}
		return errors.Join(wantStatus(ctx, a, r, ledger.Already), wantTotal(ctx, a, "call", 12))
	}},
	{"an older one again", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "older"}
		first := g.report(clock.Now(), row(clock.Now(), "older", 12))
		var errs []error
		errs = append(errs, wantStatus(ctx, a, first, ledger.Settled))
		for range 3 {
			errs = append(errs, wantStatus(ctx, a, g.report(clock.Now(), row(clock.Now(), "older", 1)), ledger.Settled))
		}
		if _, err := drain(ctx, a, clock.Now()); err != nil {
			return err
		}
		errs = append(errs, wantStatus(ctx, b, first, ledger.Already), wantTotal(ctx, b, "older", 15))
		return errors.Join(errs...)
	}},
	{"to two servers at once", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "race"}
		var want int64
		for i := range int64(20) {
			r := g.report(clock.Now(), row(clock.Now(), "race", i+1))
			want += i + 1
			var settled atomic.Int64
			var errs [4]error
			var wg sync.WaitGroup
			for n := range errs {
				wg.Go(func() {
					s := a
					if n%2 == 1 {
						s = b
					}
					receipt, err := settleOne(ctx, s, r)
					if err == nil && receipt.Status == ledger.Settled {
						settled.Add(1)
					} else if err == nil && receipt.Status != ledger.Already {
						err = fmt.Errorf("got %s (%s)", statusName(receipt.Status), receipt.Message)
					}
					errs[n] = err
				})
			}
			wg.Wait()
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			if settled.Load() != 1 {
				return fmt.Errorf("report %d: settled %d times, want once", r.Seq, settled.Load())
			}
		}
		return wantTotal(ctx, a, "race", want)
	}},
	{"out of order", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "order"}
		r1 := g.report(clock.Now(), row(clock.Now(), "order", 1))
		r2 := g.report(clock.Now(), row(clock.Now(), "order", 2))
		r3 := g.report(clock.Now(), row(clock.Now(), "order", 4))
		return errors.Join(
			wantStatus(ctx, a, r2, ledger.Ahead),
			wantTotal(ctx, a, "order", 0),
			wantStatus(ctx, b, r1, ledger.Settled),
			wantStatus(ctx, a, r3, ledger.Ahead),
			wantStatus(ctx, a, r2, ledger.Settled),
			wantStatus(ctx, b, r1, ledger.Already),
			wantStatus(ctx, b, r3, ledger.Settled),
			wantStatus(ctx, a, r2, ledger.Already),
			wantTotal(ctx, b, "order", 7))
	}},
	{"out of order in one call", func(ctx context.Context, a, _ ledger.Store, clock *Clock) error {
		g := agent{id: "orders"}
		r1 := g.report(clock.Now(), row(clock.Now(), "orders", 1))
		r2 := g.report(clock.Now(), row(clock.Now(), "orders", 2))
		receipts, err := a.Settle(ctx, []ledger.Report{r2, r1})
		if err != nil {
			return err
		}
		for i, r := range receipts {
			if r.Status != ledger.Settled {
				return fmt.Errorf("receipt %d: got %s", i, statusName(r.Status))
			}
		}
		return errors.Join(
			wantStatus(ctx, a, r1, ledger.Already),
			wantStatus(ctx, a, r2, ledger.Already),
			wantTotal(ctx, a, "orders", 3))
	}},
	{"after a lost reply", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "lost"}
		r := g.report(clock.Now(), row(clock.Now(), "lost", 12))
		var lossy ledger.Store = losing{a}
		if _, err := settleOne(ctx, lossy, r); !errors.Is(err, ledger.ErrUnavailable) {
			return fmt.Errorf("a lost reply: got %w, want ErrUnavailable", err)
		}
		return errors.Join(
			wantStatus(ctx, b, r, ledger.Already),
			wantStatus(ctx, b, g.report(clock.Now(), row(clock.Now(), "lost", 5)), ledger.Settled),
			wantTotal(ctx, a, "lost", 17))
	}},
	{"at a month's edge", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "edge"}
		edge := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
		clock.Advance(edge.Sub(clock.Now()) - time.Minute) // its first slot is the next
		before := g.report(edge, row(edge.Add(-5*time.Minute), "edge", 10), row(edge, "edge", 1))
		if err := wantStatus(ctx, a, before, ledger.Settled); err != nil {
			return err
		}
		if _, err := drain(ctx, a, clock.Now()); err != nil {
			return err
		}
		clock.Advance(edge.Sub(clock.Now()) + time.Minute)
		after := g.report(clock.Now(), row(edge.Add(-5*time.Minute), "edge", 100), row(edge, "edge", 1000))
		err := errors.Join(
			wantStatus(ctx, b, before, ledger.Already),
			wantStatus(ctx, b, after, ledger.Settled),
			wantStatus(ctx, a, after, ledger.Already))
		if err != nil {
			return err
		}
		for range 2 { // unfolded, then folded
			u, err := b.Usage(ctx, ledger.Query{Tenant: "edge", By: ledger.ByMonth})
			if err != nil {
				return err
			}
			if len(u.Rows) != 2 || u.Rows[0].Admitted != 110 || u.Rows[1].Admitted != 1001 {
				return fmt.Errorf("by month: got %+v, want 110 in March and 1001 in April", u.Rows)
			}
			if _, err := drain(ctx, a, clock.Now()); err != nil {
				return err
			}
		}
		return nil
	}},
	{"an empty report hides none", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "empty"}
		beat := g.report(clock.Now())
		full := g.report(clock.Now(), row(clock.Now(), "empty", 9))
		hollow := ledger.NewReport("empty", 0, 2, 0, nil, clock.Now().UnixMilli(), false)
		return errors.Join(
			wantStatus(ctx, a, beat, ledger.Settled),
			wantStatus(ctx, b, full, ledger.Settled),
			wantStatus(ctx, a, full, ledger.Already),
			wantTotal(ctx, a, "empty", 9),
			wantStatus(ctx, a, hollow, ledger.Fenced),
			wantStatus(ctx, b, full, ledger.Already),
			wantTotal(ctx, b, "empty", 9))
	}},
	{"a twin", func(ctx context.Context, a, b ledger.Store, clock *Clock) error {
		g := agent{id: "twin"}
		first := g.report(clock.Now(), row(clock.Now(), "twin", 1))
		twin := g // a cloned machine goes on from the same state
		mine, its := g.report(clock.Now(), row(clock.Now(), "twin", 10)), twin.report(clock.Now(), row(clock.Now(), "twin", 20))
		return errors.Join(
			wantStatus(ctx, a, first, ledger.Settled),
			wantStatus(ctx, a, mine, ledger.Settled),
			wantStatus(ctx, b, its, ledger.Fenced),
			wantStatus(ctx, a, g.report(clock.Now(), row(clock.Now(), "twin", 100)), ledger.Fenced),
			wantStatus(ctx, b, mine, ledger.Already),
			wantTotal(ctx, a, "twin", 11))
	}},
}

// losing is a server whose replies get lost.
type losing struct{ ledger.Store }

func (l losing) Settle(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	if _, err := l.Store.Settle(ctx, reports); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: the reply is lost", ledger.ErrUnavailable)
}

func settledOnce(t *testing.T, fresh func(testing.TB) Engine) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			e, clock := fresh(t), NewClock()
			o := ledger.Options{Now: clock.Now}
			if err := w.check(t.Context(), e.Open(t, o), e.Open(t, o), clock); err != nil {
				t.Fatal(err)
			}
		})
	}
	// The control: on a ledger whose guard was taken out, every check must see it.
	for _, w := range ways {
		t.Run("control "+w.name, func(t *testing.T) {
			e, clock := fresh(t), NewClock()
			e.Unguard(t)
			o := ledger.Options{Now: clock.Now}
			err := w.check(t.Context(), e.Open(t, o), e.Open(t, o), clock)
			if err == nil {
				t.Fatal("the check passes without the guard: it cannot see a report that settles twice")
			}
			t.Logf("as it should: %v", err)
		})
	}
}

// neighbours: one bad report, or one bad row, fails nothing beside it.
func neighbours(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
		if r.Tenant == "unknown" {
			return errors.New("unknown tenant")
		}
		return nil
	}})
	now := clock.Now()
	good := agent{id: "good"}
	bad := func(id string, change func(*ledger.Report)) ledger.Report {
		g := agent{id: id}
		r := g.report(now, row(now, "bad", 1000))
		change(&r)
		return r
	}
	resealed := func(change func(*ledger.Report)) func(*ledger.Report) {
		return func(r *ledger.Report) { change(r); r.Digest = r.Sum() }
	}
	mixed := agent{id: "mixed"}
	weird := row(now, "weird\x00", 5)
	long := row(now, "acme", 7)
	long.Attributes = string(make([]byte, ledger.MaxAttributes+1))
	latin := row(now, "caf\xe9", 3)
	reports := []ledger.Report{
		good.report(now, row(now, "acme", 1)),
		bad("digest", func(r *ledger.Report) { r.Digest[0]++ }),
		bad("payload", resealed(func(r *ledger.Report) { r.Payload = r.Payload[:len(r.Payload)-1] })),
		bad("total", resealed(func(r *ledger.Report) { r.After++ })),
		bad("bad agent", resealed(func(*ledger.Report) {})),
		mixed.report(now, row(now, "acme", 10), row(now, "unknown", 100), row(now.AddDate(0, -3, 0), "acme", 200),
			row(now.Add(10*time.Minute), "acme", 400), row(now.Add(5*time.Minute), "acme", 20), weird, long, latin),
		good.report(now, row(now, "acme", 2)),
	}
	receipts, err := s.Settle(t.Context(), reports)
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.Status{ledger.Settled, ledger.Rejected, ledger.Rejected, ledger.Rejected, ledger.Rejected, ledger.Settled, ledger.Settled}
	for i := range want {
		if receipts[i].Status != want[i] {
			t.Errorf("report of %s: got %s (%s), want %s", reports[i].Agent, statusName(receipts[i].Status), receipts[i].Message, statusName(want[i]))
		}
	}
	for range 2 {
		if err := errors.Join(
			wantTotal(t.Context(), s, "acme", 33), wantTotal(t.Context(), s, "bad", 0), wantTotal(t.Context(), s, "", 33)); err != nil {
			t.Error(err)
		}
		if _, err := drain(t.Context(), s, now); err != nil {
			t.Fatal(err)
		}
	}
	got := text(e.Query(t, "SELECT agent, row_number, reason FROM quarantine WHERE agent <> 'mixed' AND agent <> '' ORDER BY agent"))
	if got != "digest -1 ledger: bad report: digest does not fit the content\n"+
		"payload -1 ledger: bad report: ledger: not the canonical encoding of rows: a number is cut short or not minimal\n"+
		"total -1 ledger: bad report: rows admit 1000 units, totals move by 1001\n" {
		t.Errorf("kept reports: got\n%s", got)
	}
	got = text(e.Query(t, "SELECT reason FROM quarantine WHERE agent = 'mixed' ORDER BY reason"))
	if got != "attributes of 2601 bytes, at most 2600\n"+
		"slot 2025-12-31T23:50:00Z is before the oldest partition\n"+
		"slot 2026-04-01T00:00:00Z is more than one slot ahead\n"+
		"tenant is not text\n"+"tenant is not text\n"+"unknown tenant\n" {
		t.Errorf("rows in quarantine: got\n%s", got)
	}
	if err := errors.Join(
		wantStatus(t.Context(), s, reports[1], ledger.Rejected), // as it was answered; kept once
		wantStatus(t.Context(), s, bad("digest", func(*ledger.Report) {}), ledger.Fenced),
		wantStatus(t.Context(), s, reports[5], ledger.Already)); err != nil {
		t.Error(err)
	}
	if got := text(e.Query(t, "SELECT count(*) FROM quarantine WHERE agent = 'digest'")); got != "1\n" {
		t.Errorf("a rejected report that came again is kept %s times, want once", strings.TrimSpace(got))
	}
}

// groups: many agents call at once; every call has its own receipts.
func groups(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	o := ledger.Options{Now: clock.Now}
	servers := []ledger.Store{e.Open(t, o), e.Open(t, o)}
	const agents, reports = 40, 5
	errs := make([]error, agents)
	var wg sync.WaitGroup
	for i := range agents {
		wg.Go(func() {
			g := agent{id: fmt.Sprintf("agent-%02d", i)}
			for n := range reports {
				r := g.report(clock.Now(), row(clock.Now(), "acme", int64(i+1)))
				got, err := settleOne(t.Context(), servers[(i+n)%2], r)
				if err == nil && (got.Status != ledger.Settled || got.NextSeq != g.seq+1 || got.Total != g.total) {
					err = fmt.Errorf("%s report %d: got %+v, want settled, total %d", g.id, g.seq, got, g.total)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := wantTotal(t.Context(), servers[0], "acme", reports*agents*(agents+1)/2); err != nil {
		t.Fatal(err)
	}
}

// overlapping: agents that lost their server send to others, all at once, in any order, with new epochs among
// them. Nobody waits in a circle, and each settles once.
func overlapping(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	o := ledger.Options{Now: clock.Now}
	servers := []ledger.Store{e.Open(t, o), e.Open(t, o)}
	rng := rand.New(rand.NewPCG(11, 13))
	agents := make([]agent, 12)
	var want int64
	for round := range 15 {
		var reports []ledger.Report
		for i := range agents {
			if g := &agents[i]; round%5 == i%5 {
				*g = agent{id: fmt.Sprintf("agent-%02d", i), epoch: int64(round + 1)}
			}
			agents[i].id = fmt.Sprintf("agent-%02d", i)
			for range 3 {
				reports = append(reports, agents[i].report(clock.Now(), row(clock.Now(), "acme", int64(i+1))))
				want += int64(i + 1)
			}
		}
		settled := make([]atomic.Int64, len(reports))
		var errs [6]error
		var wg sync.WaitGroup
		for n := range errs {
			order := rng.Perm(len(reports))
			wg.Go(func() {
				batch := make([]ledger.Report, len(order))
				for i, at := range order {
					batch[i] = reports[at]
				}
				receipts, err := servers[n%2].Settle(t.Context(), batch)
				for i, r := range receipts {
					switch r.Status {
					case ledger.Settled:
						settled[order[i]].Add(1)
					case ledger.Already:
					default:
						err = fmt.Errorf("%s/%d: got %s (%s)", batch[i].Agent, batch[i].Seq, statusName(r.Status), r.Message)
					}
				}
				errs[n] = err
			})
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		for i := range settled {
			if n := settled[i].Load(); n != 1 {
				t.Errorf("%s/%d settled %d times, want once", reports[i].Agent, reports[i].Seq, n)
			}
		}
	}
	if err := wantTotal(t.Context(), servers[1], "acme", want); err != nil {
		t.Error(err)
	}
}

// closed: a closed store answers that it is, and does not hang.
func closed(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	g := agent{id: "a"}
	if err := wantStatus(t.Context(), s, g.report(clock.Now(), row(clock.Now(), "acme", 1)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if _, err := s.Settle(t.Context(), []ledger.Report{g.report(clock.Now())}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("settle after close: got %v, want ErrUnavailable", err)
	}
	if _, _, err := s.Fold(t.Context(), clock.Now()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("fold after close: got %v, want ErrUnavailable", err)
	}
	if _, err := s.Usage(t.Context(), ledger.Query{}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("usage after close: got %v, want ErrUnavailable", err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ping after close: got nil")
	}
	if err := s.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	if err := wantTotal(t.Context(), e.Open(t, ledger.Options{Now: clock.Now}), "acme", 1); err != nil {
		t.Errorf("opened again: %v", err)
	}
}
