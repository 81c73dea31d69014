package ledgertest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// histories: whatever agents, servers and the network do, the ledger's totals are the sum of what was
// acknowledged, nothing twice. A report that an agent sends until it is acknowledged gets in.
func histories(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	o := ledger.Options{Now: clock.Now}
	servers := []ledger.Store{e.Open(t, o), e.Open(t, o)}
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		h := &history{servers: servers, clock: clock, prefix: fmt.Sprintf("r%d-", run), durable: map[ledger.ReportID]ledger.Report{}}
		for i := range 3 {
			h.agents = append(h.agents, &historyAgent{agent: agent{id: fmt.Sprintf("%sagent-%d", h.prefix, i)}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"report": h.report,
			"send":   h.send,
			"batch":  h.batch,
			"again":  h.again,
			"twin":   h.twin,
			"fold":   h.fold,
			"time":   func(*rapid.T) { clock.Advance(time.Minute) },
			"check":  h.check,
		})
		h.settle(t)
		h.check(t)
	})
	for _, s := range servers {
		if _, err := drain(t.Context(), s, clock.Now()); err != nil {
			t.Fatal(err)
		}
	}
	WantRollups(t, e)
	verify(t, servers[0])
}

type history struct {
	servers []ledger.Store
	clock   *Clock
	prefix  string
	agents  []*historyAgent
	durable map[ledger.ReportID]ledger.Report // acknowledged at least once
	sent    []ledger.Report
}

type historyAgent struct {
	agent
	waiting []ledger.Report // frozen, not acknowledged
	fenced  bool
}

func (h *history) server(t *rapid.T) ledger.Store {
	return rapid.SampledFrom(h.servers).Draw(t, "server")
}

func (h *history) pick(t *rapid.T) *historyAgent { return rapid.SampledFrom(h.agents).Draw(t, "agent") }

func (h *history) report(t *rapid.T) {
	a := h.pick(t)
	if a.fenced {
		return
	}
	var rows []ledger.Row
	for range rapid.IntRange(0, 4).Draw(t, "rows") {
		r := row(h.clock.Now().Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "slots ago"))*5*time.Minute),
			h.prefix+rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tenant"), rapid.Int64Range(0, 1000).Draw(t, "admitted"))
		r.Attributes = rapid.SampledFrom([]string{"", "user=1"}).Draw(t, "attributes")
		r.Plan = rapid.SampledFrom([]string{"", "free", "paid"}).Draw(t, "plan")
		rows = append(rows, r)
	}
	a.waiting = append(a.waiting, a.agent.report(h.clock.Now(), rows...))
}

// deliver sends reports; a lost reply is one that the agent does not see.
func (h *history) deliver(t *rapid.T, s ledger.Store, reports []ledger.Report, lost bool) {
	h.sent = append(h.sent, reports...)
	receipts, err := s.Settle(t.Context(), reports)
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	for i, receipt := range receipts {
		r := reports[i]
		id := ledger.ReportID{Epoch: ledger.Epoch{Agent: r.Agent, Epoch: r.Epoch}, Seq: r.Seq}
		a := h.agents[0]
		for _, each := range h.agents {
			if each.id == r.Agent {
				a = each
			}
		}
		switch receipt.Status {
		case ledger.Settled:
			if was, ok := h.durable[id]; ok {
				t.Fatalf("%v settled twice: %v and %v", id, was.Digest, r.Digest)
			}
			h.durable[id] = r
		case ledger.Already:
			if was, ok := h.durable[id]; !ok || was.Digest != r.Digest {
				t.Fatalf("%v acknowledged again, but never settled", id)
			}
		case ledger.Ahead:
			if receipt.NextSeq >= r.Seq {
				t.Fatalf("%v is ahead, but the ledger waits for %d", id, receipt.NextSeq)
			}
			continue
		case ledger.Fenced:
			if !lost {
				a.fenced = true
			}
			continue
		default:
			t.Fatalf("%v: got %s (%s)", id, statusName(receipt.Status), receipt.Message)
		}
		if lost {
			continue
		}
		for len(a.waiting) > 0 && a.waiting[0].Seq <= r.Seq && a.waiting[0].Digest == h.durable[ledger.ReportID{Epoch: id.Epoch, Seq: a.waiting[0].Seq}].Digest {
			a.waiting = a.waiting[1:]
		}
	}
}

func (h *history) send(t *rapid.T) {
	a := h.pick(t)
	if len(a.waiting) == 0 {
		return
	}
	n := rapid.IntRange(0, len(a.waiting)-1).Draw(t, "which")
	h.deliver(t, h.server(t), a.waiting[n:n+1], rapid.Bool().Draw(t, "lost"))
}

func (h *history) batch(t *rapid.T) {
	var reports []ledger.Report
	for _, a := range h.agents {
		reports = append(reports, a.waiting...)
	}
	if len(reports) > 0 {
		h.deliver(t, h.server(t), rapid.Permutation(reports).Draw(t, "order"), rapid.Bool().Draw(t, "lost"))
	}
}

func (h *history) again(t *rapid.T) {
	if len(h.sent) > 0 {
		h.deliver(t, h.server(t), []ledger.Report{rapid.SampledFrom(h.sent).Draw(t, "report")}, true)
	}
}

// twin sends another report under a number that was sent already.
func (h *history) twin(t *rapid.T) {
	if len(h.sent) == 0 || rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
		return
	}
	of := rapid.SampledFrom(h.sent).Draw(t, "of")
	h.deliver(t, h.server(t), []ledger.Report{
		ledger.NewReport(of.Agent, of.Epoch, of.Seq, of.Before, []ledger.Row{row(h.clock.Now(), h.prefix+"x", 7)}, of.Through+1, false),
	}, true)
}

func (h *history) fold(t *rapid.T) {
	if _, _, err := h.server(t).Fold(t.Context(), h.clock.Now()); err != nil {
		t.Fatalf("fold: %v", err)
	}
}

// settle is what agents do in the end: send all, in order, until it is in.
func (h *history) settle(t *rapid.T) {
	for _, a := range h.agents {
		for len(a.waiting) > 0 && !a.fenced {
			before := len(a.waiting)
			h.deliver(t, h.server(t), a.waiting[:1], false)
			if len(a.waiting) == before && !a.fenced {
				t.Fatalf("%s: report %d does not get in", a.id, a.waiting[0].Seq)
			}
		}
	}
}

func (h *history) check(t *rapid.T) {
	want := map[string]int64{}
	for _, r := range h.durable {
		rows, err := ledger.DecodeRows(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			want[row.Tenant+" "+row.Attributes] += row.Admitted
		}
	}
	var errs []error
	for _, tenant := range []string{h.prefix + "x", h.prefix + "y"} {
		u, err := h.server(t).Usage(t.Context(), ledger.Query{Tenant: tenant, By: ledger.ByAttribute})
		if err != nil {
			t.Fatalf("usage: %v", err)
		}
		for _, r := range u.Rows {
			key := tenant + " " + r.Attributes
			if got := r.Admitted; got != want[key] {
				errs = append(errs, fmt.Errorf("%s: the ledger has %d units, acknowledged were %d", key, got, want[key]))
			}
			delete(want, key)
		}
	}
	for key, units := range want {
		if units != 0 && strings.HasPrefix(key, h.prefix) {
			errs = append(errs, fmt.Errorf("%s: the ledger has nothing, acknowledged were %d", key, units))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
