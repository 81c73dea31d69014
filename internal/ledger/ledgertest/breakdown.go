package ledgertest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// sealedRow is a row and the block that it went into.
type sealedRow struct {
	ledger.Row
	height int64
}

// breakdown: usage told apart by any dimensions equals a loop over the rows of the blocks. That holds at any
// height, whole and in pages, whatever is folded meanwhile.
func breakdown(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	if info, err := books.Breakdown(t.Context(), ledger.BreakdownQuery{By: []string{ledger.DimTenant}}, func(*ledger.BreakdownRow) error { return errors.New("a row") }, nil); err != nil || info.Block.Height != 0 || !info.Complete.IsZero() {
		t.Fatalf("of nothing: %+v, %v", info, err)
	}
	clock.Advance(40 * time.Hour) // April 2, 15:50
	begin := clock.Now().Add(-60 * time.Hour).Truncate(time.Hour)
	for i, tenant := range [][2]string{{"acme", ""}, {"acme/web", "acme"}, {"acme/web/eu", "acme/web"}, {"zeta", ""}} {
		e.Tamper(t, fmt.Sprintf("INSERT INTO tenants (id, plan, parent, overrides, suspended, change) VALUES ('%s', 'x', '%s', '', 0, %d)", tenant[0], tenant[1], i))
	}
	random := rand.New(rand.NewPCG(7, 7))
	var all []sealedRow
	a := agent{id: "a"}
	for height := int64(1); height <= 5; height++ {
		var rows []ledger.Row
		for range 60 {
			r := row(begin.Add(time.Duration(random.IntN(60*12))*5*time.Minute), []string{"acme", "acme/web", "acme/web/eu", "zeta"}[random.IntN(4)], int64(1+random.IntN(50)))
			n := random.IntN(3)
			r.Limit, r.Meter = []string{"requests", "per-user", "egress"}[n], []string{"requests", "", "egress"}[n]
			r.Attributes = fmt.Sprintf("endpoint=/%d%sxendpoint=/9%suser=u%d", random.IntN(3), ledger.AttributeSep, ledger.AttributeSep, random.IntN(3))
			r.Plan = []string{"free", "paid", ""}[random.IntN(3)]
			r.Version, r.Denied, r.Overage = int64(1+random.IntN(3)), int64(random.IntN(7)), int64(random.IntN(2))
			if random.IntN(20) == 0 {
				r.Admitted, r.Overage, r.Denied, r.Meter, r.Attributes = 0, 0, 5, "", ledger.WouldDeny
			}
			rows = append(rows, r)
			all = append(all, sealedRow{r, height})
		}
		if err := wantStatus(t.Context(), s, a.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
		if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 1 {
			t.Fatalf("fold: %d, %v", n, err)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	dimensions := []string{ledger.DimTenant, ledger.DimPlan, ledger.DimLimit, ledger.DimMeter, ledger.DimAttributes, ledger.DimAttribute + "endpoint", ledger.DimAttribute + "none"}
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	for i := range 250 {
		q := ledger.BreakdownQuery{
			Every: ledger.Every(random.IntN(5)), Zone: []*time.Location{nil, berlin, kolkata}[random.IntN(3)], Peak: random.IntN(4) == 0,
			Tenant: pick("", "", "acme", "zeta", "nobody"), Plan: pick("", "", "", "free", "paid"), Limit: pick("", "", "requests", "per-user"),
			Meter: pick("", "", "egress"), Attribute: pick("", "", "endpoint=/1", "user=u2"), Height: int64(random.IntN(6)),
		}
		q.Subtree = q.Tenant != "" && random.IntN(2) == 0
		if random.IntN(3) == 0 {
			q.Since = int64(random.IntN(3))
			q.Height = max(q.Height, q.Since)
		}
		if random.IntN(3) == 0 {
			q.Except = []int64{2, 3}
		}
		if random.IntN(2) == 0 {
			q.From = begin.Add(time.Duration(random.IntN(20*60)) * time.Minute)
			q.To = q.From.Add(time.Duration(random.IntN(50*60)) * time.Minute)
		}
		for _, n := range random.Perm(len(dimensions))[:random.IntN(4)] {
			q.By = append(q.By, dimensions[n])
		}
		want := broken(all, &q)
		got, info := breakdownOf(t, books, q)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("question %d %+v:\n got %s\nwant %s", i, q, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
		if newest := q.Height == 0 || q.Height == 5; newest != info.Complete.Equal(latest(clock.Now())) || q.Height != 0 && info.Block.Height != q.Height {
			t.Fatalf("question %d: %+v, want the block asked for, complete through %s of the newest alone", i, info, clock.Now())
		}
		if q.Rows = 1 + random.IntN(4); len(want) < 60 {
			if paged := pagedBreakdown(t, books, q); strings.Join(paged, "\n") != strings.Join(want, "\n") {
				t.Fatalf("question %d %+v in pages:\n got %s\nwant %s", i, q, strings.Join(paged, "\n     "), strings.Join(want, "\n     "))
			}
		}
	}
	// Those with the most, whatever their names.
	top := ledger.BreakdownQuery{By: []string{ledger.DimTenant, ledger.DimLimit}, Top: 2, TopBy: "denied"}
	got, _ := breakdownOf(t, books, top)
	top.Top = 0
	every, _ := breakdownOf(t, books, top)
	slices.SortStableFunc(every, func(a, b string) int { return cmp.Compare(denials(t, b), denials(t, a)) })
	if strings.Join(got, "\n") != strings.Join(every[:2], "\n") {
		t.Errorf("the most denials:\n got %s\n of %s", strings.Join(got, "\n     "), strings.Join(every, "\n     "))
	}
	for what, bad := range map[string]ledger.BreakdownQuery{
		"tenant twice": {By: []string{"tenant", "tenant"}}, "it must be tenant, plan": {By: []string{"agent"}}, "no attribute's name": {By: []string{"attribute:a'b"}},
		"some tenant's": {Subtree: true}, "must be admitted": {Top: 3, TopBy: "units"}, "range as a whole": {Top: 3, TopBy: "denied", Every: ledger.EveryDay},
		"name=value": {Attribute: "endpoint"}, "there are none": {Since: 4, Height: 3}, "of another breakdown": {After: &ledger.BreakdownMark{Names: []string{"a"}}},
	} {
		if _, err := books.Breakdown(t.Context(), bad, nil, nil); !errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v, want %q", bad, err, what)
		}
	}
	if _, err := books.Breakdown(t.Context(), ledger.BreakdownQuery{Height: 9}, nil, nil); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a block that is not there: %v, want ErrNotFound", err)
	}
	breakdownWithoutEntries(t, e, books)
	stop := errors.New("the reader is gone")
	if _, err := books.Breakdown(t.Context(), ledger.BreakdownQuery{}, func(*ledger.BreakdownRow) error { return stop }, nil); !errors.Is(err, stop) || errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("an error of the reader: %v, want it", err)
	}
}

// breakdownWithoutEntries: archived usage is read from roll-ups, or not at all.
func breakdownWithoutEntries(t *testing.T, e Engine, books ledger.Books) {
	t.Helper()
	march := "1772323200"
	if e.Overriding != "" { // Postgres has dates
		march = "'2026-03-01'"
	}
	e.Tamper(t, "INSERT INTO archives (month, fact, file, row_count, bytes, sha256, low, high, actor, at_ms) VALUES ("+march+", 'entries', 'f', 1, 1, '', 1, 2, 'ann', 0)")
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(q ledger.BreakdownQuery) error {
		_, err := books.Breakdown(t.Context(), q, func(*ledger.BreakdownRow) error { return nil }, nil)
		return err
	}
	for i, q := range []ledger.BreakdownQuery{
		{}, {Every: ledger.EveryHour, By: []string{ledger.DimTenant}}, {Plan: "free"}, {By: []string{ledger.DimPlan}}, {Height: 2}, {Every: ledger.EverySlot, From: april}, {Peak: true, From: april}, {Since: 1, From: april}, {Height: 1, From: april},
	} {
		if err := ask(q); err != nil {
			t.Errorf("question %d: %v", i, err)
		}
	}
	for what, q := range map[string]ledger.BreakdownQuery{
		"by slot": {Every: ledger.EverySlot}, "its peak": {Peak: true}, "since a height": {Since: 1}, "begins or ends within an hour": {From: april.Add(-150 * time.Minute)},
		"a day of a zone": {Every: ledger.EveryDay, Zone: kolkata}, "a height below 2": {Height: 1},
	} {
		if err := ask(q); !errors.Is(err, ledger.ErrQuery) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "before 2026-04-01 are archived") {
			t.Errorf("%s without entries: %v, want a refusal", what, err)
		}
	}
}

func denials(t *testing.T, row string) (n int64) {
	t.Helper()
	_, rest, _ := strings.Cut(row, " denied ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func breakdownText(r *ledger.BreakdownRow) string {
	return fmt.Sprintf("%d %q admitted %d overage %d denied %d peak %d", r.Start, r.Names, r.Admitted, r.Overage, r.Denied, r.Peak)
}

func breakdownOf(t *testing.T, books ledger.Books, q ledger.BreakdownQuery) (all []string, info ledger.BreakdownInfo) {
	t.Helper()
	var last ledger.Progress
	info, err := books.Breakdown(t.Context(), q, func(r *ledger.BreakdownRow) error {
		all = append(all, breakdownText(r))
		return nil
	}, func(p ledger.Progress) { last = p })
	if err != nil || last.Done != last.Total {
		t.Fatalf("%+v: %v, progress %+v", q, err, last)
	}
	return all, info
}

// mostBeyond: the tenant with the most is on top although its sum ends at MaxSum.
func mostBeyond(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	a := agent{id: "a"}
	if err := wantStatus(t.Context(), s, a.report(clock.Now(), row(clock.Now(), "big", 10), row(clock.Now(), "small", 20), row(clock.Now().Add(-time.Hour), "big", 1)), ledger.Settled); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	// Two hours of it, which come to more than there is.
	e.Tamper(t, "UPDATE rollups SET admitted = 9000000000000000000 WHERE key IN (SELECT key FROM keys WHERE tenant = 'big')")
	got, _ := breakdownOf(t, booksOf(s), ledger.BreakdownQuery{By: []string{ledger.DimTenant}, Top: 2, TopBy: "admitted"})
	if len(got) != 2 || !strings.Contains(got[0], "big") || !strings.Contains(got[0], strconv.FormatInt(ledger.MaxSum, 10)) {
		t.Errorf("the most: %v, want big's first", got)
	}
}

// pagedBreakdown reads page after page, of the block of the first.
func pagedBreakdown(t *testing.T, books ledger.Books, q ledger.BreakdownQuery) (all []string) {
	t.Helper()
	for {
		n := 0
		mark := &ledger.BreakdownMark{}
		info, err := books.Breakdown(t.Context(), q, func(r *ledger.BreakdownRow) error {
			all = append(all, breakdownText(r))
			mark.Start, mark.Names = r.Start, r.Names
			n++
			return nil
		}, nil)
		if err != nil || n > q.Rows {
			t.Fatalf("%+v: %d rows, %v", q, n, err)
		}
		if n < q.Rows {
			return all
		}
		mark.Height = info.Block.Height
		if q.After, err = ledger.ParseBreakdownMark(mark.String()); err != nil {
			t.Fatal(err)
		}
		q.Height = mark.Height
	}
}

// broken answers a question by a loop over all rows.
func broken(all []sealedRow, q *ledger.BreakdownQuery) []string {
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	rows := map[string]*ledger.BreakdownRow{}
	slots := map[string]map[int64]int64{}
	for _, r := range all {
		at := time.Unix(r.Slot, 0)
		pairs := strings.Split(r.Attributes, ledger.AttributeSep)
		switch {
		case q.Height > 0 && r.height > q.Height, r.height <= q.Since, r.Attributes == ledger.WouldDeny, slices.Contains(q.Except, r.Version),
			!q.From.IsZero() && at.Before(q.From), !q.To.IsZero() && !at.Before(q.To),
			q.Tenant != "" && r.Tenant != q.Tenant && (!q.Subtree || !strings.HasPrefix(r.Tenant, q.Tenant+"/")),
			q.Plan != "" && r.Plan != q.Plan, q.Limit != "" && r.Limit != q.Limit, q.Meter != "" && r.Meter != q.Meter,
			q.Attribute != "" && !slices.Contains(pairs, q.Attribute):
			continue
		}
		sum := ledger.Sum{Admitted: r.Admitted, Overage: r.Overage, Denied: r.Denied}
		if r.Meter == "" && !q.Has(ledger.DimLimit) && q.Limit == "" {
			sum.Admitted, sum.Overage = 0, 0
		}
		start, y, m, d := int64(0), at.In(zone).Year(), at.In(zone).Month(), at.In(zone).Day()
		switch q.Every {
		case ledger.EveryRange:
		case ledger.EverySlot:
			start = r.Slot
		case ledger.EveryHour:
			start = r.Slot - r.Slot%3600
		case ledger.EveryDay:
			start = time.Date(y, m, d, 0, 0, 0, 0, zone).Unix()
		case ledger.EveryMonth:
			start = time.Date(y, m, 1, 0, 0, 0, 0, zone).Unix()
		}
		if q.Every >= ledger.EveryDay && !q.From.IsZero() {
			start = max(start, q.From.Unix())
		}
		var names []string
		for _, d := range q.By {
			name := ""
			switch d {
			case ledger.DimTenant:
				name = r.Tenant
			case ledger.DimPlan:
				name = r.Plan
			case ledger.DimLimit:
				name = r.Limit
			case ledger.DimMeter:
				name = r.Meter
			case ledger.DimAttributes:
				name = r.Attributes
			default:
				for _, p := range pairs {
					if v, ok := strings.CutPrefix(p, strings.TrimPrefix(d, ledger.DimAttribute)+"="); ok {
						name = v
					}
				}
			}
			names = append(names, name)
		}
		key := fmt.Sprintf("%d %q", start, names)
		if rows[key] == nil {
			rows[key], slots[key] = &ledger.BreakdownRow{Start: start, Names: names}, map[int64]int64{}
		}
		s := rows[key]
		s.Admitted += sum.Admitted
		s.Overage += sum.Overage
		s.Denied += sum.Denied
		if slots[key][r.Slot] += sum.Admitted; q.Peak {
			s.Peak = max(s.Peak, slots[key][r.Slot])
		}
	}
	var sorted []*ledger.BreakdownRow
	for _, r := range rows {
		if r.Sum != (ledger.Sum{}) {
			sorted = append(sorted, r)
		}
	}
	slices.SortFunc(sorted, func(a, b *ledger.BreakdownRow) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), slices.Compare(a.Names, b.Names))
	})
	var texts []string
	for _, r := range sorted {
		texts = append(texts, breakdownText(r))
	}
	return texts
}
