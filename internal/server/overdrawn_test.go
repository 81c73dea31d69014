package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const overdrawnPolicy = `
plans:
  p:
    limits:
      - {name: requests, rate: 100/second, meter: requests}
      - {name: daily, algorithm: fixed_window, rate: 1000000/day, meter: dailies}
      - {name: open, rate: 100/second, on_outage: open, match: {way: open}, meter: opens}
      - {name: counted, match: {way: counted}, meter: counts}
default_plan: p
`

// kept is what is in quarantine.
func (w *world) kept() []ledger.KeptRow {
	w.t.Helper()
	kept, err := w.ledger.Books().Quarantine(w.t.Context(), ledger.QuarantineQuery{N: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return kept
}

// thief has an agent's key and no lease. It sends one report after another.
type thief struct {
	w          *world
	api        quotav1.LeaseServiceClient
	agent      string
	epoch, seq int64
	total      int64
	behind     time.Duration // what it says that its reports end before now
	unsealed   bool          // that its reports are
}

func (w *world) thief(agent string, epoch int64) *thief {
	return &thief{w: w, api: quotav1.NewLeaseServiceClient(w.dial()), agent: agent, epoch: epoch}
}

// settle sends a report until it is settled, and says how long that took.
func (f *thief) settle(rows ...ledger.Row) time.Duration {
	f.w.t.Helper()
	f.seq++
	r := ledger.NewReport(f.agent, f.epoch, f.seq, f.total, ledger.MergeRows(rows), time.Now().Add(-f.behind).UnixMilli(), false)
	f.total, r.Unsealed = r.After, f.unsealed
	for began := time.Now(); ; time.Sleep(time.Second) {
		resp, err := f.api.Settle(f.w.t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
		if err != nil {
			f.w.t.Fatal(err)
		}
		switch status := resp.Receipts[0].Status; {
		case status == quotav1.Receipt_STATUS_SETTLED:
			return time.Since(began)
		case status != quotav1.Receipt_STATUS_UNAVAILABLE || time.Since(began) > time.Minute:
			f.w.t.Fatalf("report %d: %v", f.seq, resp.Receipts[0])
		}
	}
}

func usageOf(limit, meter string, units int64) ledger.Row {
	return ledger.Row{Slot: time.Now().Truncate(5 * time.Minute).Unix(), Tenant: "acme", Limit: limit, Meter: meter, Version: 1, Admitted: units}
}

// What a journal does not vouch for is in quarantine at once, and held against no lease: what was leased can be settled after it.
func TestUnsealedUsageIsHeldAgainstNoLease(t *testing.T) {
	inBothWorlds(t, time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC), overdrawnPolicy, func(t *testing.T, w *world) {
		f := w.thief("gw-1", time.Now().UnixMicro())
		for _, units := range []int64{1_000_000, 1_000} {
			f.unsealed = units > 1_000
			if took := f.settle(usageOf("requests", "requests", units)); took > time.Second {
				t.Errorf("unsealed %v: settled after %v, want at once", f.unsealed, took)
			}
		}
		kept := w.kept()
		if len(kept) != 1 || !strings.HasPrefix(kept[0].Reason, ledger.UnsealedPrefix) {
			t.Errorf("kept: %+v, want what is unsealed", kept)
		}
		if n := w.total("quota_server_overdrawn_units_total"); n != 0 {
			t.Errorf("%v units count as overdrawn", n)
		}
	})
}

// A key settles a million units that it never leased: they are not billed but kept aside with the reason, and whoever
// looks finds them. The margin is billed once, however many epochs and reports it is divided among; so is what was
// leased. A limit that needs no lease is not held against anybody.
func TestAKeySettlesWhatItNeverLeased(t *testing.T) {
	inBothWorlds(t, time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC), overdrawnPolicy, func(t *testing.T, w *world) {
		honest := w.gateway("gw-1")
		for range 40 {
			allow(10, acme(), honest)
			time.Sleep(time.Second)
		}
		w.shut(honest)
		const margin = 100*30 + 100
		f := w.thief("gw-1", time.Now().UnixMicro())
		if took := f.settle(usageOf("requests", "requests", 1_000_000)); took < 20*time.Second || took > 40*time.Second {
			t.Errorf("what does not fit was settled after %v, want it sent back for half a minute: another server may have granted it", took)
		}
		f.settle(usageOf("requests", "requests", 900))
		f.settle(usageOf("requests", "requests", 3_000_000))
		another := w.thief("gw-1", time.Now().UnixMicro()+1)
		for range 5 {
			another.settle(usageOf("requests", "requests", 600))
		}
		f.settle(usageOf("requests", "requests", 5_000), usageOf("made up", "requests", 7_000), usageOf("counted", "counts", 1_000_000))

		var many []ledger.Row
		for i := range ledger.MaxDrawnLimits + 1 {
			many = append(many, usageOf(fmt.Sprint("made-up-", i), "requests", 1))
		}
		f.settle(many...)

		for left := true; left; {
			var err error
			if _, left, err = w.ledger.Fold(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		got := w.settled(ledger.Query{})
		if n := got["requests"].Admitted; n < 400+900 || n > 2*400+400/20+margin {
			t.Errorf("requests: %d units are billed, want those of the gateway, 400, and at most what renewals told again and %d of margin", n, margin)
		}
		if n := got["made-up-1"].Admitted; n != 0 {
			t.Errorf("one of very many limits that are made up: %d units are billed", n)
		}
		if n := got["made up"].Admitted; n != 0 {
			t.Errorf("a limit that is made up: %d units are billed", n)
		}
		if n := got["counted"].Admitted; n != 1_000_000 {
			t.Errorf("a limit without a rate: %d units are billed, want all", n)
		}
		units := int64(ledger.MaxDrawnLimits + 1)
		for _, k := range w.kept() {
			if strings.HasPrefix(k.Reason, ledger.OverdrawnPrefix+"it names 2049 limits") {
				continue
			}
			rows, err := ledger.DecodeRows(k.Body)
			if err != nil || !strings.HasPrefix(k.Reason, ledger.OverdrawnPrefix+"agent gw-1 settled") {
				t.Errorf("kept: %q, %v", k.Reason, err)
			}
			units += rows[0].Admitted
		}
		if units < 4_000_000 {
			t.Errorf("%d units are in quarantine", units)
		}
		if n := w.total("quota_server_overdrawn_units_total"); int64(n) != units {
			t.Errorf("counted: got %v units, want %d", n, units)
		}
		differ := int64(0)
		found, err := w.ledger.Books().Reconcile(t.Context(), ledger.ReconcileQuery{N: 5000})
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			for _, d := range found[i].Differences() {
				if d.Name == ledger.Overdrawn {
					differ += d.Units
				}
			}
		}
		if differ != units {
			t.Errorf("reconciliation names %d units settled above granted, want %d", differ, units)
		}
	})
}

// A thief that knows the protocol gains nothing by saying that its usage is of long ago, nor by usage of a version on
// trial, which nobody bills.
func TestAThiefWhoKnowsTheProtocol(t *testing.T) {
	for _, trick := range []string{"an outage of a year", "a trial", "a restart after a trial"} {
		t.Run(trick, func(t *testing.T) {
			inWorld(t, time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC), overdrawnPolicy, func(t *testing.T, w *world) {
				trial, err := w.policy.SetShadow(t.Context(), "ann", w.parse(strings.Replace(overdrawnPolicy, "100/second", "90/second", 1)), false)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				f := w.thief("gw-1", time.Now().UnixMicro())
				if _, err := f.api.Renew(t.Context(), &quotav1.RenewRequest{Agent: f.agent, Epoch: f.epoch, Renewals: []*quotav1.Renewal{
					{Limit: "requests", Tenant: "acme", Number: 1, Began: 1, Waiting: 1},
				}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second)
				switch trick {
				case "an outage of a year":
					f.behind = 365 * 24 * time.Hour
					f.settle()
					f.behind = 2 * time.Minute
				default:
					r := usageOf("requests", "requests", 1_000_000_000)
					r.Version = trial.Version
					f.settle(r)
				}
				if trick == "a restart after a trial" {
					w.stop()
					w.start()
					f = w.thief("gw-1", time.Now().UnixMicro())
				}
				f.settle(usageOf("requests", "requests", 10_000_000))
				for left := true; left; {
					if _, left, err = w.ledger.Fold(t.Context(), time.Now()); err != nil {
						t.Fatal(err)
					}
				}
				billed := int64(0)
				for _, k := range w.kept() {
					rows, err := ledger.DecodeRows(k.Body)
					if err != nil {
						t.Fatal(err)
					}
					billed -= rows[0].Admitted
				}
				if billed += 10_000_000; billed > 100*60+200 {
					t.Errorf("%d units of 10,000,000 are settled, want no more than a lease, a margin and a minute of the limit", billed)
				}
			})
		})
	}
}

// offLeases is a lease store that is away while it is told to be.
type offLeases struct {
	lease.Store
	off atomic.Bool
}

func (s *offLeases) Renew(ctx context.Context, renewals []lease.Renewal) []lease.Answer {
	if !s.off.Load() {
		return s.Store.Renew(ctx, renewals)
	}
	return unanswered(renewals)
}

// lossyLedger loses what servers record, and stalls, while it is told to: as for a server that is killed, or an outage.
type lossyLedger struct {
	worldLedger
	lose, off atomic.Bool
}

func (l *lossyLedger) Settle(ctx context.Context, reports []ledger.Report) ([]ledger.Receipt, error) {
	if l.off.Load() {
		return nil, ledger.ErrUnavailable
	}
	return l.worldLedger.Settle(ctx, reports)
}

func (l *lossyLedger) Books() ledger.Books { return &lossyBooks{l.worldLedger.Books(), l} }

type lossyBooks struct {
	ledger.Books
	l *lossyLedger
}

func (b *lossyBooks) Record(ctx context.Context, server string, number int64, accounts []ledger.Account) error {
	switch {
	case b.l.off.Load():
		return ledger.ErrUnavailable
	case b.l.lose.Load():
		return nil
	}
	return b.Books.Record(ctx, server, number, accounts)
}

func (b *lossyBooks) Drawn(ctx context.Context, e ledger.Epoch) (ledger.Drawn, error) {
	if b.l.off.Load() {
		return ledger.Drawn{}, ledger.ErrUnavailable
	}
	return b.Books.Drawn(ctx, e)
}

// Usage that is in order is billed at once, whatever happened meanwhile: nothing of it goes to quarantine.
func TestHonestUsageIsNotOverdrawn(t *testing.T) {
	type scene struct {
		*world
		leases *offLeases
		ledger *lossyLedger
		cut    atomic.Bool // of the gateway
		dir    string
		g      *client.Client
		want   map[string]int64 // by limit
	}
	open := func(s *scene) {
		s.g = s.gateway("gw", client.WithJournal(s.dir), s.world.cut(&s.cut))
	}
	// drive spends as much as there is, or n a second.
	drive := func(s *scene, d time.Duration, n int, ways ...string) {
		for range d / time.Second {
			if len(ways) == 0 {
				ways = []string{"plain"}
			}
			for _, way := range ways {
				got := allow(n, acme(client.Attribute{Name: "way", Value: way}), s.g)
				s.want["requests"] += got
				if way == "open" {
					s.want["open"] += got
				}
			}
			time.Sleep(time.Second)
		}
	}
	for name, play := range map[string]func(s *scene){
		"nothing happened": func(s *scene) { drive(s, 2*time.Minute, 200) },
		"the server starts anew": func(s *scene) {
			drive(s, 34*time.Second, 200)
			s.stop()
			s.start()
			drive(s, 34*time.Second, 200)
		},
		"it is killed": func(s *scene) {
			drive(s, 35*time.Second, 200)
			s.ledger.lose.Store(true)
			s.stop()
			s.ledger.lose.Store(false)
			s.start()
			drive(s, 34*time.Second, 200)
		},
		"it is killed early": func(s *scene) {
			s.ledger.lose.Store(true)
			drive(s, 9*time.Second, 200)
			s.stop()
			s.ledger.lose.Store(false)
			s.start()
			drive(s, 34*time.Second, 200)
		},
		"another server": func(s *scene) {
			drive(s, 15*time.Second, 200)
			first := s.stop
			s.start()
			second := s.stop
			s.stop = func() { first(); second() }
			s.cut.Store(true)
			time.Sleep(100 * time.Millisecond)
			s.cut.Store(false)
			drive(s, 5*time.Second, 200)
			s.shut(s.g)
			s.g = nil
		},
		"the ledger was away": func(s *scene) {
			drive(s, 15*time.Second, 200)
			s.ledger.off.Store(true)
			drive(s, 15*time.Minute, 120)
			s.ledger.off.Store(false)
			drive(s, time.Minute, 120)
		},
		"everything was away": func(s *scene) {
			drive(s, 15*time.Second, 120, "open")
			s.cut.Store(true)
			drive(s, 10*time.Minute, 300, "open")
			s.cut.Store(false)
			drive(s, time.Minute, 120, "open")
		},
		"the lease store was away": func(s *scene) {
			drive(s, 15*time.Second, 120, "open")
			s.leases.off.Store(true)
			drive(s, 10*time.Minute, 300, "open")
			s.leases.off.Store(false)
			drive(s, time.Minute, 120, "open")
		},
		"the gateway is killed in an outage": func(s *scene) {
			drive(s, 15*time.Second, 120, "open")
			s.cut.Store(true)
			drive(s, 10*time.Minute, 300, "open")
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			if err := s.g.Close(ctx); err == nil {
				s.t.Error("the gateway settled in an outage")
			}
			cancel()
			s.cut.Store(false)
			open(s)
			drive(s, time.Minute, 120)
		},
		"booked": func(s *scene) {
			drive(s, 15*time.Second, 10)
			for range 20 {
				if err := s.g.Book(context.Background(), client.Request{Units: 50_000, Attributes: acme()}); err != nil {
					s.t.Error(err)
				}
				s.want["requests"] += 50_000
				time.Sleep(3 * time.Second)
			}
		},
		"booked while the lease store was away": func(s *scene) {
			drive(s, 15*time.Second, 10)
			s.leases.off.Store(true)
			for range 20 {
				if err := s.g.Book(context.Background(), client.Request{Units: 50_000, Attributes: acme()}); err != nil {
					s.t.Error(err)
				}
				s.want["requests"] += 50_000
				time.Sleep(10 * time.Second)
			}
			s.leases.off.Store(false)
			drive(s, time.Minute, 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, noon, overdrawnPolicy, func(t *testing.T, w *world) {
				s := &scene{world: w, want: map[string]int64{}, dir: t.TempDir()}
				s.leases, s.ledger = &offLeases{Store: w.leases}, &lossyLedger{worldLedger: w.ledger}
				w.stop()
				w.leases, w.ledger = s.leases, s.ledger
				w.start()
				open(s)
				play(s)
				if s.g != nil {
					w.shut(s.g)
				}
				for _, k := range w.kept() {
					t.Errorf("in quarantine: %s/%d/%d: %s", k.Of.Epoch.Agent, k.Of.Epoch.Epoch, k.Of.Seq, k.Reason)
				}
				got := w.settled(ledger.Query{})
				for name, want := range s.want {
					if n := got[name].Admitted; n != want {
						t.Errorf("%s: %d units are billed, want %d", name, n, want)
					}
				}
				if s.want["requests"] < 100 {
					t.Error("hardly anything was admitted")
				}
			})
		})
	}
}

// Limits of all kinds, tenants with limits of their own and below others, a trial beside them, and a server that is
// killed: all that is admitted is billed, whatever the next server finds in the ledger.
func TestAllKindsOfLimitsSettle(t *testing.T) {
	const text = `
limits: [{name: everybody, algorithm: sliding_window, rate: 5000/minute}]
plans:
  p:
    limits:
      - {name: requests, rate: 20/second, burst: 40, meter: requests}
      - {name: window, algorithm: fixed_window, rate: 600/minute, meter: windows}
      - {name: log, algorithm: sliding_window_log, rate: 50/second, meter: logs}
      - {name: leaky, algorithm: leaky_bucket, rate: 30/second, meter: leaks}
      - {name: soft, rate: 10/second, enforcement: soft, overage: 50%, meter: softs}
      - {name: softer, rate: 10/second, enforcement: soft, meter: softers}
      - {name: touched, by: [ip], rate: 10/minute, first_touch: admit, meter: touches}
      - {name: apart, by: [ip], rate: 10/minute, meter: aparts}
      - {name: slots, algorithm: concurrency, slots: 100}
      - {name: tried, rate: 5/second, shadow: true}
  above:
    limits: [{name: org, rate: 100/second, meter: orgs}]
default_plan: p
tenants:
  - {id: org, plan: above}
  - {id: org/a, plan: p, parent: org}
  - {id: unlimited, plan: p, limits: [{name: requests, meter: requests}]}
  - {id: more, plan: p, limits: [{name: requests, rate: 200/second, meter: requests}, {name: own, rate: 50/second, meter: owns}]}
`
	inWorld(t, noon, text, func(t *testing.T, w *world) {
		l := &lossyLedger{worldLedger: w.ledger}
		w.stop()
		w.ledger = l
		w.start()
		if _, err := w.policy.SetShadow(t.Context(), "ann", w.parse(strings.Replace(text, "20/second", "10/second", 1)), false); err != nil {
			t.Fatal(err)
		}
		gateways := []*client.Client{w.gateway("gw-1"), w.gateway("gw-2")}
		admitted := map[string]int64{}
		drive := func(d time.Duration, tenants ...string) {
			for i := range d / (100 * time.Millisecond) {
				for _, tenant := range tenants {
					for _, ip := range []string{"10.0.0.1", "10.0.0." + string('0'+rune(i%10))} {
						admitted[tenant] += allow(2, []client.Attribute{client.Tenant(tenant), {Name: "ip", Value: ip}}, gateways...)
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		all := []string{"org/a", "unlimited", "more", "acme", "globex", "umbrella"}
		drive(25*time.Second, all...)
		l.lose.Store(true)
		drive(9*time.Second, all...)
		w.stop()
		l.lose.Store(false)
		w.start()
		drive(15*time.Second, "acme", "globex")
		drive(25*time.Second, all...)
		w.stop()
		w.start()
		drive(15*time.Second, all...)
		w.shut(gateways...)
		for i, k := range w.kept() {
			if i < 10 {
				t.Errorf("in quarantine: %s/%d/%d: %s", k.Of.Epoch.Agent, k.Of.Epoch.Epoch, k.Of.Seq, k.Reason)
			}
		}
		found := 0
		for tenant, want := range admitted {
			u, err := w.ledger.Usage(t.Context(), ledger.Query{Tenant: tenant, By: ledger.ByLimit})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range u.Rows {
				if r.Limit != "requests" || r.Meter != "requests" {
					continue
				}
				if found++; r.Admitted != want {
					t.Errorf("%s: %d units are billed, want %d", tenant, r.Admitted, want)
				}
			}
		}
		if found != len(all) {
			t.Errorf("%d tenants were admitted anything, want %d", found, len(all))
		}
	})
}

// An agent whose epoch takes no more goes on under another, and its leases stay those of the first: also where its
// reports come to another server than its renewals. The next life's usage is its own.
func TestAnEpochWithoutLeasesHasThoseOfTheOneBefore(t *testing.T) {
	inWorld(t, noon, overdrawnPolicy, func(t *testing.T, w *world) {
		api := quotav1.NewLeaseServiceClient(w.dial())
		told := map[int64]int64{}
		renew := func(epoch int64) {
			t.Helper()
			told[epoch]++
			resp, err := api.Renew(t.Context(), &quotav1.RenewRequest{Agent: "gw", Epoch: epoch, Renewals: []*quotav1.Renewal{
				{Tenant: "acme", Limit: "requests", Began: 1, Number: told[epoch], Admitted: 10_000 * told[epoch], Told: 10_000 * (told[epoch] - 1)},
			}})
			if err != nil || resp.Grants[0].Status != quotav1.Grant_STATUS_GRANTED {
				t.Fatalf("%v, %v", resp, err)
			}
		}
		fits := func(f *thief, most time.Duration) {
			t.Helper()
			if took := f.settle(usageOf("requests", "requests", 10_000)); took > most {
				t.Errorf("epoch %d: it was settled after %v", f.epoch, took)
			}
		}
		first, on, next := w.thief("gw", 1000), w.thief("gw", 2024), w.thief("gw", 5000)
		renew(1000)
		fits(first, 0)
		time.Sleep(11 * time.Second) // until it is recorded that the first epoch has leases
		for range 3 {
			renew(1000)
			fits(on, 0)
		}
		renew(5000)
		fits(next, 0)
		time.Sleep(11 * time.Second)
		renew(1000) // a twin that lives on
		fits(on, 2*time.Second)
		defer w.another()()
		other := w.thief("gw", 2025) // through another server, which hears within 10 s of what this one granted
		renew(1000)
		fits(other, 12*time.Second)
		if kept := w.kept(); len(kept) > 0 {
			t.Errorf("in quarantine: %+v", kept[0])
		}
		if took := next.settle(usageOf("requests", "requests", 10_000)); took < 20*time.Second || len(w.kept()) != 1 {
			t.Errorf("what the next life was not granted was settled after %v; %d rows are in quarantine", took, len(w.kept()))
		}
	})
}
