package ledgertest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// scenarios runs testdata: files that say what a ledger is told and what it answers.
//
//	settle agent=a seq=1 [epoch=0] [before=n] [through=15:04:05] [closed] [origin=epoch/total] [lose=reply] [forge=digest|total|payload]
//	15:04 tenant/limit=admitted [overage=n] [denied=n] [meter=name] [attributes=pairs]
//
//	fold | agents | quarantine | entries | clock [+duration]
//
//	usage [tenant=] [by=] [from=15:04] [to=15:04] [zone=]
//
// A report follows on from the agent's last one that was settled, unless it says before. Times are of March 31,
// 2026, or of a day before or after, as in "+1d 00:00".
func scenarios(t *testing.T, fresh func(testing.TB) Engine) {
	dir, err := filepath.Abs("../ledgertest/testdata")
	if err != nil {
		t.Fatal(err)
	}
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		e, clock := fresh(t), NewClock()
		s := &scenario{t: t, e: e, clock: clock, totals: map[ledger.Epoch]int64{}}
		s.store = e.Open(t, ledger.Options{Now: clock.Now, Accept: func(_ string, r ledger.Row) error {
			if strings.HasPrefix(r.Tenant, "unknown") {
				return fmt.Errorf("tenant %s is not known", r.Tenant)
			}
			return nil
		}})
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	t      *testing.T
	e      Engine
	store  ledger.Store
	clock  *Clock
	totals map[ledger.Epoch]int64
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "settle":
		return s.settle(t, d)
	case "fold":
		n, _, err := s.store.Fold(t.Context(), s.clock.Now())
		return answer(fmt.Sprintf("folded %d\n", n), err)
	case "clock":
		for _, a := range d.CmdArgs {
			by, err := time.ParseDuration(strings.TrimPrefix(a.Key, "+"))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			s.clock.Advance(by)
		}
		return s.clock.Now().Format(time.RFC3339) + "\n"
	case "usage":
		return s.usage(t, d)
	case "agents":
		states, err := s.store.Agents(t.Context(), "", 100)
		var b strings.Builder
		for _, a := range states {
			fmt.Fprintf(&b, "%s/%d seq=%d total=%d through=%s %s\n", a.Agent, a.Epoch, a.Seq, a.Total, a.Through.Format(time.RFC3339), a.State)
		}
		return answer(b.String(), err)
	case "quarantine":
		return text(s.e.Query(t, "SELECT agent, epoch, seq, row_number, reason FROM quarantine ORDER BY id"))
	case "entries":
		return text(s.e.Query(t, `SELECT height, slot, tenant, limit_name, admitted FROM entries e JOIN keys k ON k.key = e.key ORDER BY height, n`))
	}
	d.Fatalf(t, "no such command: %s", d.Cmd)
	return ""
}

func (s *scenario) settle(t *testing.T, d *datadriven.TestData) string {
	var id string
	var epoch, seq int64
	d.ScanArgs(t, "agent", &id)
	d.ScanArgs(t, "seq", &seq)
	d.MaybeScanArgs(t, "epoch", &epoch)
	before := s.totals[ledger.Epoch{Agent: id, Epoch: epoch}]
	d.MaybeScanArgs(t, "before", &before)
	through := s.clock.Now()
	var at string
	if d.MaybeScanArgs(t, "through", &at) {
		through = parseTime(t, d, at)
	}
	var rows []ledger.Row
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if line != "" {
			rows = append(rows, parseRow(t, d, line))
		}
	}
	r := ledger.NewReport(id, epoch, seq, before, rows, through.UnixMilli(), d.HasArg("closed"))
	var origin string
	if d.MaybeScanArgs(t, "origin", &origin) {
		from, total, _ := strings.Cut(origin, "/")
		r.Origin = ledger.Origin{Epoch: parseNumber(t, d, from), Total: parseNumber(t, d, total)}
	}
	var forge string
	d.MaybeScanArgs(t, "forge", &forge)
	switch forge {
	case "digest":
		r.Digest[0]++
	case "total":
		r.After++
		r.Digest = r.Sum()
	case "payload":
		r.Payload = append([]byte{9}, r.Payload...)
		r.Digest = r.Sum()
	}
	store := s.store
	if d.HasArg("lose") {
		store = losing{store}
	}
	receipt, err := settleOne(t.Context(), store, r)
	if err != nil {
		return "error: unavailable\n"
	}
	if receipt.Status == ledger.Settled || receipt.Status == ledger.Already {
		s.totals[ledger.Epoch{Agent: id, Epoch: epoch}] = receipt.Total
	}
	out := fmt.Sprintf("%s, next %d, total %d", statusName(receipt.Status), receipt.NextSeq, receipt.Total)
	if receipt.Message != "" {
		out += ": " + receipt.Message
	}
	return out + "\n"
}

func parseRow(t *testing.T, d *datadriven.TestData, line string) ledger.Row {
	words := strings.Fields(line)
	if strings.HasPrefix(words[0], "+") || strings.HasPrefix(words[0], "-") {
		words = append([]string{words[0] + " " + words[1]}, words[2:]...)
	}
	r := ledger.Row{Slot: parseTime(t, d, words[0]).Unix(), Version: 1}
	what, count, _ := strings.Cut(words[1], "=")
	r.Tenant, r.Limit, _ = strings.Cut(what, "/")
	r.Meter = r.Limit
	r.Admitted = parseNumber(t, d, count)
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "overage":
			r.Overage = parseNumber(t, d, value)
		case "denied":
			r.Denied = parseNumber(t, d, value)
		case "meter":
			r.Meter = value
		case "attributes":
			r.Attributes = value
		default:
			d.Fatalf(t, "no such field: %s", w)
		}
	}
	return r
}

func parseNumber(t *testing.T, d *datadriven.TestData, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

// parseTime reads "15:04", "15:04:05", or "+1d 15:04".
func parseTime(t *testing.T, d *datadriven.TestData, s string) time.Time {
	days := 0
	if word, rest, ok := strings.Cut(strings.ReplaceAll(s, "_", " "), " "); ok {
		days = int(parseNumber(t, d, strings.TrimSuffix(word, "d")))
		s = rest
	}
	layout := "15:04"
	if strings.Count(s, ":") == 2 {
		layout = "15:04:05"
	}
	at, err := time.Parse(layout, s)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	y, m, day := Start.Date()
	return time.Date(y, m, day+days, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
}

func (s *scenario) usage(t *testing.T, d *datadriven.TestData) string {
	var q ledger.Query
	var by, from, to, zone string
	d.MaybeScanArgs(t, "tenant", &q.Tenant)
	if d.MaybeScanArgs(t, "by", &by) {
		kinds := map[string]ledger.By{
			"total": ledger.ByTotal, "hour": ledger.ByHour, "day": ledger.ByDay, "month": ledger.ByMonth,
			"limit": ledger.ByLimit, "attribute": ledger.ByAttribute,
		}
		var ok bool
		if q.By, ok = kinds[by]; !ok {
			d.Fatalf(t, "by what? %s", by)
		}
	}
	if d.MaybeScanArgs(t, "from", &from) {
		q.From = parseTime(t, d, from)
	}
	if d.MaybeScanArgs(t, "to", &to) {
		q.To = parseTime(t, d, to)
	}
	if d.MaybeScanArgs(t, "zone", &zone) {
		z, err := time.LoadLocation(zone)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		q.Zone = z
	}
	u, err := s.store.Usage(t.Context(), q)
	out := printUsage(u.Rows)
	if u.Complete.IsZero() {
		out += "complete: nothing was settled\n"
	} else {
		out += "complete through " + u.Complete.Format(time.RFC3339) + "\n"
	}
	if len(u.Lagging) > 0 {
		out += "lagging: " + strings.Join(u.Lagging, " ") + "\n"
	}
	return answer(out, err)
}

func answer(out string, err error) string {
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return out
}
