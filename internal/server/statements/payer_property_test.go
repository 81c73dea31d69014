package statements

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/terms"
	"github.com/f4ee788f/quota/internal/server/servertest"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// forest is tenants that come, leave, move and pay, and what they used: a model of who pays, slot by slot.
type forest struct {
	*billed
	r       *rand.Rand
	tenants map[string]*tree
	ids     []string
	version int64
	used    []usedUnits
	number  int
	shadow  int64            // a version that is only tried
	settled int64            // all units that were sent, less those that were taken back
	given   map[string]int64 // credits by currency
}

type tree struct {
	parent, zone, plan string
	pays               bool  // its parent does
	from               int64 // since when, as the document says it; 0 for now
	began              int64
	links              []link // who paid from when on: its parent, or itself
}

type link struct {
	from  int64
	payer string
}

type usedUnits struct {
	tenant string
	slot   int64
	units  int64
}

// payer is who pays for a tenant in a slot.
func (f *forest) payer(tenant string, slot int64) string {
	for range 10 {
		next := tenant
		for _, l := range f.tenants[tenant].links {
			if l.from <= slot {
				next = l.payer
			}
		}
		if next == tenant {
			return tenant
		}
		tenant = next
	}
	f.T.Fatalf("%s is paid in a circle", tenant)
	return ""
}

// apply applies all tenants as they are; changed is the one of which something is new.
func (f *forest) apply(changed string) error {
	text := `default_plan: free
plans:
  free: {limits: [{name: requests, rate: 1000/hour, meter: requests}]}
  paid:
    limits: [{name: requests, rate: 1000/hour, meter: requests}]
    price: {monthly: 31.00 USD, minimum: 40.00 USD, meters: {requests: {included: 100, tiers: [{up_to: 1000, unit: 0.05}, {unit: 0.01}]}}}
  gold:
    limits: [{name: requests, rate: 1000/hour, meter: requests}]
    price: {monthly: 62.00 EUR, meters: {requests: {unit: 0.03}}}
tenants:
`
	for _, id := range f.ids {
		t := f.tenants[id]
		pays := "self"
		if t.pays {
			pays = "parent"
		}
		if t.from != 0 {
			pays += ", from: " + time.Unix(t.from, 0).UTC().Format(time.RFC3339)
		}
		parent := ""
		if t.parent != "" {
			parent = ", parent: " + t.parent
		}
		text += fmt.Sprintf("  - {id: %s, plan: %s%s, billing: {zone: %s, pays: %s}}\n", id, t.plan, parent, t.zone, pays)
	}
	doc, err := policy.Parse("quota.yaml", []byte(text))
	if err != nil {
		return err
	}
	done, err := f.Policy.Apply(f.T.Context(), "ann", doc, 0, false)
	if err != nil {
		return err
	}
	f.version = done.Version
	t, at := f.tenants[changed], terms.NextSlot(f.At)
	who := changed
	if t.pays {
		who = t.parent
	}
	if t.began == 0 {
		t.began = f.At.Unix()
		t.links = []link{{0, who}}
		return nil
	}
	t.links = slices.DeleteFunc(t.links, func(l link) bool { return l.from >= at && l.from > 0 })
	now := t.links[len(t.links)-1].payer
	t.links = append(t.links, link{at, now}, link{max(at, t.from), who})
	return nil
}

// change has a tenant come, move, leave, or be paid for by another.
func (f *forest) change() {
	var id string
	if len(f.ids) < 6 && (len(f.ids) < 2 || f.r.IntN(3) == 0) {
		id = fmt.Sprint("t", len(f.ids))
		f.ids = append(f.ids, id)
		f.tenants[id] = &tree{zone: []string{"UTC", "Asia/Kolkata", "America/Havana"}[f.r.IntN(3)], plan: []string{"paid", "gold"}[f.r.IntN(2)]}
	} else {
		id = f.ids[f.r.IntN(len(f.ids))]
	}
	t := f.tenants[id]
	was := *t
	was.links = slices.Clone(t.links)
	t.from = 0
	switch f.r.IntN(4) {
	case 0:
		if parent := f.ids[f.r.IntN(len(f.ids))]; parent != id && t.parent != parent {
			t.parent, t.pays = parent, f.r.IntN(3) > 0
		}
	case 1:
		t.pays = !t.pays && t.parent != ""
	case 2:
		if t.parent != "" { // from the next month on
			t.pays, t.from = !t.pays, time.Date(f.At.Year(), f.At.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix()
		}
	case 3:
		t.plan = []string{"paid", "gold"}[f.r.IntN(2)]
	}
	err := f.apply(id)
	if err == nil {
		return
	}
	if text := err.Error(); !strings.Contains(text, "ancestor") && !strings.Contains(text, "circle") { // the test's own mistakes
		f.T.Fatalf("%s from %+v to %+v: %v", id, was, *t, err)
	}
	*t = was
	if t.began == 0 {
		f.ids = f.ids[:len(f.ids)-1]
		delete(f.tenants, id)
	}
}

// use has a tenant use something: now, or in a slot of before, which is told late; or some of it is taken back.
func (f *forest) use() {
	id := f.ids[f.r.IntN(len(f.ids))]
	began := f.tenants[id].began
	slot := f.At.Unix() - f.r.Int64N(min(f.At.Unix()-began, []int64{3600, 86400, 200 * 86400, 200 * 86400}[f.r.IntN(4)])+1)
	slot = max(slot, began)
	slot -= slot % billing.Grid
	if again := len(f.used); again > 0 && f.r.IntN(2) == 0 { // late, of a slot that was used before
		old := f.used[f.r.IntN(again)]
		id, slot = old.tenant, old.slot
	}
	if f.r.IntN(8) == 0 && len(f.used) > 0 {
		if back := &f.used[f.r.IntN(len(f.used))]; back.units > 0 {
			f.correct(*back)
			back.units = 0
		}
		return
	}
	u := usedUnits{id, slot, f.r.Int64N(400) + 1}
	if f.r.IntN(6) == 0 { // a clock that is ahead: it goes to quarantine
		u.slot = f.At.Unix() + 2*billing.Grid + f.r.Int64N(40*86400)
		u.slot -= u.slot % billing.Grid
	} else {
		f.used = append(f.used, u)
	}
	f.send(u, "", f.version)
}

// stranger uses something that is on no statement: of before a tenant was made, of one that nobody ever makes, or of a
// version that is only tried.
func (f *forest) stranger() {
	id, plan, version := f.ids[f.r.IntN(len(f.ids))], []string{"", "free"}[f.r.IntN(2)], f.version
	slot := f.tenants[id].began/3600*3600 - billing.Grid*(1+f.r.Int64N(25*288))
	switch f.r.IntN(4) {
	case 0: // of one that may be made later
		id, slot = fmt.Sprint("t", len(f.ids)), f.At.Unix()-7200
	case 1:
		id, slot = "nobody", f.At.Unix()
	case 2:
		plan, version, slot = "", f.shadow, max(f.tenants[id].began, f.At.Unix()-86400)
	}
	f.send(usedUnits{id, slot - slot%billing.Grid, f.r.Int64N(400) + 1}, plan, version)
}

// send has an agent settle units.
func (f *forest) send(u usedUnits, plan string, version int64) {
	f.Seq["gw"]++
	row := ledger.Row{Slot: u.slot, Tenant: u.tenant, Limit: "requests", Meter: "requests", Version: version, Plan: plan, Admitted: u.units}
	report := ledger.NewReport("gw", 1, f.Seq["gw"], f.Total["gw"], []ledger.Row{row}, f.At.UnixMilli(), false)
	f.Total["gw"], f.settled = report.After, f.settled+u.units
	if receipts, err := f.Ledger.Settle(f.T.Context(), []ledger.Report{report}); err != nil || receipts[0].Status != ledger.Settled {
		f.T.Fatalf("settle: %+v, %v", receipts, err)
	}
	if _, _, err := f.Ledger.Fold(f.T.Context(), f.At); err != nil {
		f.T.Fatal(err)
	}
}

// credit gives something to one who has had a statement.
func (f *forest) credit() {
	var had []string
	for _, id := range f.ids {
		if all, err := f.Policy.Statements(f.T.Context(), id, 0, 1); err != nil {
			f.T.Fatal(err)
		} else if len(all) > 0 {
			had = append(had, id)
		}
	}
	if len(had) == 0 {
		return
	}
	f.number++
	money := billing.Money{Amount: f.r.Int64N(9000) + 1, Currency: []string{"USD", "EUR"}[f.r.IntN(2)]}
	_, err := f.s.GiveCredit(servertest.AsAnn(f.T.Context()), &quotav1.GiveCreditRequest{Id: fmt.Sprint("gift-", f.number), Tenant: had[f.r.IntN(len(had))], Amount: money.String()})
	if err != nil {
		if !errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), "pays") { // one that nothing would use
			f.T.Fatal(err)
		}
		return
	}
	f.given[money.Currency] += money.Amount
}

// booked is how many units the ledger has.
func (f *forest) booked(q ledger.Query) (units int64) {
	u, err := f.Ledger.Usage(f.T.Context(), q)
	if err != nil {
		f.T.Fatal(err)
	}
	for _, row := range u.Rows {
		units += row.Admitted
	}
	return units
}

// kept is what is in quarantine, by its id.
func (f *forest) kept() map[int64]usedUnits {
	kept, err := f.Books.Quarantine(f.T.Context(), ledger.QuarantineQuery{N: 1000})
	if err != nil {
		f.T.Fatal(err)
	}
	all := make(map[int64]usedUnits)
	for _, k := range kept {
		rows, err := ledger.DecodeRows(k.Body)
		if err != nil || len(rows) != 1 {
			f.T.Fatalf("%v, %v", rows, err)
		}
		all[k.ID] = usedUnits{rows[0].Tenant, rows[0].Slot, rows[0].Admitted}
	}
	return all
}

// release has what may be released leave quarantine: it is late usage of its slot.
func (f *forest) release() {
	kept := f.kept()
	ids := slices.Sorted(maps.Keys(kept))
	if len(ids) == 0 {
		return
	}
	if f.r.IntN(4) == 0 {
		if err := f.Books.Discard(f.T.Context(), "ann", "nobody's", ids[:1]); err != nil {
			f.T.Fatal(err)
		}
		f.settled -= kept[ids[0]].units
		return
	}
	done, err := f.Books.Retry(f.T.Context(), "ann", "the clock was ahead", ids)
	if err != nil {
		f.T.Fatal(err)
	}
	for _, id := range done.Released {
		f.used = append(f.used, kept[id])
	}
	if _, _, err := f.Ledger.Fold(f.T.Context(), f.At); err != nil {
		f.T.Fatal(err)
	}
}

// withheld is what is in quarantine of slots before a time that a tenant paid for.
func (f *forest) withheld(payer string, before int64) (units int64) {
	for _, u := range f.kept() {
		if u.slot < before && f.payer(u.tenant, u.slot) == payer {
			units += u.units
		}
	}
	return units
}

func (f *forest) correct(u usedUnits) {
	f.number++
	f.settled -= u.units
	row := ledger.Row{Slot: u.slot, Tenant: u.tenant, Limit: "requests", Meter: "requests", Version: f.version, Admitted: u.units}
	c, err := ledger.NewCorrection(ledger.KindAdjust, fmt.Sprint("back ", f.number), true, []ledger.Row{row}, "a test")
	if err == nil {
		_, err = f.Books.Correct(f.T.Context(), "ann", c)
	}
	if err == nil {
		_, _, err = f.Ledger.Fold(f.T.Context(), f.At)
	}
	if err != nil {
		f.T.Fatal(err)
	}
}

// Trees that change, payers that begin late, late usage, quarantine, corrections, statements closed in any order: each
// unit and each second of each tenant's plan is on the statement of who paid for it then, and on no other. Lines add
// up, nothing that is owed vanishes, and nothing is refused for good. Each unit of the ledger is on one statement, or
// is of before its tenant was made, of one that nobody made, or of a version that was only tried; what was sent and is
// not in the ledger is in quarantine, or was discarded.
func TestEverySlotHasOnePayer(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d-%d", seed, i), func(t *testing.T) {
			f := &forest{billed: newBilled(t), r: rand.New(rand.NewPCG(seed, i)), tenants: make(map[string]*tree), given: make(map[string]int64)}
			f.ids = nil
			doc, err := policy.Parse("next.yaml", []byte(strings.ReplaceAll(servertest.PricedPolicy, "1000/hour", "5/hour")))
			if err != nil {
				t.Fatal(err)
			}
			tried, err := f.Policy.SetShadow(t.Context(), "ann", doc, false)
			if err != nil {
				t.Fatal(err)
			}
			f.shadow = tried.Version
			f.send(usedUnits{"nobody", f.At.Unix(), 1}, "free", 1) // so that the ledger has room for all months since
			for step := range 90 {
				f.At = f.At.Add(time.Duration(f.r.Int64N(int64(5 * 24 * time.Hour))))
				if f.r.IntN(3) == 0 {
					f.At = f.At.Truncate(time.Hour).Add(time.Duration(f.r.IntN(3)-1) * time.Second)
				}
				switch {
				case step > 0 && step%10 == 0:
					f.stranger()
				case step%20 == 15:
					f.credit()
				case len(f.ids) < 4 || f.r.IntN(3) == 0:
					f.change()
				case f.r.IntN(8) == 0:
					if _, err := f.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{ForceReason: "a test"}); err != nil {
						t.Fatal(err)
					}
				case f.r.IntN(5) == 0:
					f.close(f.ids[f.r.IntN(len(f.ids))])
				case f.r.IntN(12) == 0:
					f.release()
				default:
					f.use()
				}
			}
			f.At = f.At.AddDate(0, 2, 0)
			f.apart()
		})
	}
}

// close closes the next period of a tenant, if it has ended.
func (f *forest) close(tenant string) {
	_, err := f.s.CloseStatement(servertest.AsAnn(f.T.Context()), &quotav1.CloseStatementRequest{Tenant: tenant, ForceReason: "a test"})
	if err != nil && (!errors.Is(err, fault.ErrInvalid) || !strings.Contains(err.Error(), "not ended") && !strings.Contains(err.Error(), "not begun") && !strings.Contains(err.Error(), "has no statements")) {
		f.T.Fatalf("close %s: %v", tenant, err)
	}
}

type unitsOf struct{ payer, tenant string }

// apart closes all that is due, previews what is not, and checks the books.
func (f *forest) apart() {
	t := f.T
	due, err := f.s.CloseDue(servertest.AsAnn(t.Context()), &quotav1.CloseDueRequest{ForceReason: "a test"})
	if err != nil || len(due.Refused) > 0 {
		t.Fatalf("refused %v, %v", due.GetRefused(), err)
	}
	units, held := make(map[unitsOf]int64), make(map[string][]billing.Range)
	charged, lines := make(map[string]int64), make(map[string]int64)
	early := make(map[string]int64) // units of before a tenant was made that its first statement lists
	take := func(document string, closed bool) {
		s := new(billing.Statement)
		if err := json.Unmarshal([]byte(document), s); err != nil {
			t.Fatal(err)
		}
		sums := make(map[string]int64)
		for _, term := range s.Terms {
			tenant := cmp.Or(term.Tenant, s.Tenant)
			held[tenant] = append(held[tenant], term.Ranges...)
			for _, u := range term.Used {
				if term.Plan == "" || term.Plan == "free" { // which no tenant has
					early[tenant] += u.Admitted
					continue
				}
				units[unitsOf{s.Tenant, tenant}] += u.Admitted
			}
			for _, r := range term.Ranges {
				for at := r.From; at < r.To; at += 7 * billing.Grid {
					if payer := f.payer(tenant, at); payer != s.Tenant {
						t.Errorf("%s of %s is billed to %s, and %s paid for it", time.Unix(at, 0).UTC(), tenant, s.Tenant, payer)
						break
					}
				}
			}
		}
		for _, l := range s.Lines {
			sums[l.Currency] += l.Amount
			if l.Period != "" && l.Kind == billing.KindUsage {
				units[unitsOf{s.Tenant, cmp.Or(l.Tenant, s.Tenant)}] += l.Units
			}
			if closed && l.Kind != billing.KindCredit && l.Kind != billing.KindCarried {
				lines[l.Currency] += l.Amount
			}
		}
		for _, total := range s.Totals {
			if total.Total != sums[total.Currency] || total.Total < 0 {
				t.Errorf("%s of %s: %+v, lines come to %d", s.Period.Name, s.Tenant, total, sums[total.Currency])
			}
			if closed {
				charged[total.Currency] += total.Total
			}
		}
	}
	for _, id := range f.ids {
		all, err := f.Policy.Statements(t.Context(), id, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			kept, err := f.Policy.Statement(t.Context(), id, c.Period.Name)
			if err != nil {
				t.Fatal(err)
			}
			take(kept.Document, true)
		}
		preview, err := f.s.PreviewStatement(servertest.AsAnn(t.Context()), &quotav1.PreviewStatementRequest{Tenant: id})
		switch {
		case err == nil:
			take(preview.Statement.Document, false)
			if want := f.withheld(id, preview.Statement.ToMs/1000); preview.Statement.QuarantinedUnits != want {
				t.Errorf("preview of %s of %s: %d units are in quarantine, want %d", preview.Statement.Period, id, preview.Statement.QuarantinedUnits, want)
			}
		case !strings.Contains(err.Error(), "has no statements"):
			t.Errorf("preview of %s: %v", id, err)
		}
		credits, err := f.Policy.Credits(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range credits {
			charged[c.Currency] -= c.Left
		}
	}
	f.whole(units, early)
	want := make(map[unitsOf]int64)
	for _, u := range f.used {
		want[unitsOf{f.payer(u.tenant, u.slot), u.tenant}] += u.units
	}
	for of, n := range want {
		if units[of] != n {
			t.Errorf("%s used %d units that %s paid for; statements have %d", of.tenant, n, of.payer, units[of])
		}
		delete(units, of)
	}
	for of, n := range units {
		if n != 0 {
			t.Errorf("%d units of %s are on statements of %s, and it paid for none", n, of.tenant, of.payer)
		}
	}
	for _, id := range f.ids {
		ranges := held[id]
		slices.SortFunc(ranges, func(a, b billing.Range) int { return cmp.Compare(a.From, b.From) })
		if len(ranges) == 0 || ranges[0].From > terms.NextSlot(time.Unix(f.tenants[id].began, 0)) || ranges[len(ranges)-1].To < f.At.Unix() {
			t.Errorf("%s began at %d, and its plan was billed for %v", id, f.tenants[id].began, ranges)
		}
		for i := 1; i < len(ranges); i++ {
			if ranges[i].From != ranges[i-1].To {
				t.Errorf("%s: its plan is billed until %s, and then from %s", id, time.Unix(ranges[i-1].To, 0).UTC(), time.Unix(ranges[i].From, 0).UTC())
			}
		}
	}
	for currency, n := range lines {
		if charged[currency]+f.given[currency] != n {
			t.Errorf("%s: %d were charged, less what is still owed to tenants, and %d given; lines came to %d", currency, charged[currency], f.given[currency], n)
		}
	}
}

// whole adds up the ledger: what is on statements, and what is stated to be on none.
func (f *forest) whole(units map[unitsOf]int64, listed map[string]int64) {
	sum := f.booked(ledger.Query{Version: f.shadow}) + f.booked(ledger.Query{Tenant: "nobody", Except: []int64{f.shadow}})
	unmade := fmt.Sprint("t", len(f.ids))
	sum += f.booked(ledger.Query{Tenant: unmade, Except: []int64{f.shadow}})
	for _, id := range f.ids {
		before := f.booked(ledger.Query{Tenant: id, To: time.Unix(f.tenants[id].began, 0).Truncate(time.Hour), Except: []int64{f.shadow}})
		if listed[id] > before {
			f.T.Errorf("statements list %d units of before %s was made, and the ledger has %d", listed[id], id, before)
		}
		sum += before
	}
	for _, n := range units {
		sum += n
	}
	all := f.booked(ledger.Query{})
	if sum != all {
		f.T.Errorf("the ledger has %d units; statements and what is stated to be on none come to %d", all, sum)
	}
	for _, u := range f.kept() {
		all += u.units
	}
	if all != f.settled {
		f.T.Errorf("%d units were sent and not taken back; the ledger and quarantine have %d", f.settled, all)
	}
}
