package ledgertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// sealed: blocks hold of a tenant what was folded up to them, whatever comes later. Nothing is called complete
// that is not in a block.
func sealed(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	read := func(q ledger.SealedQuery) ledger.SealedSums {
		t.Helper()
		q.Tenant = "acme"
		got, err := books.Sealed(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(ledger.SealedQuery{To: 1 << 40}); got.Block.Height != 0 || len(got.Usage) != 0 || !got.Complete.IsZero() {
		t.Errorf("before anything was settled: %+v", got)
	}
	a := agent{id: "a"}
	start := clock.Now()
	settle := func(through time.Time, rows ...ledger.Row) {
		t.Helper()
		if err := wantStatus(t.Context(), s, a.report(through, rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	fold := func() {
		t.Helper()
		if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n == 0 {
			t.Fatalf("fold: %d, %v", n, err)
		}
	}
	with := func(r ledger.Row, limit, meter string, version, overage int64) ledger.Row {
		r.Limit, r.Meter, r.Version, r.Overage = limit, meter, version, overage
		return r
	}
	free := row(start, "acme", 2)
	free.Plan = "free"
	settle(start, row(start, "acme", 5), free, with(row(start, "acme", 7), "requests", "requests", 2, 3), with(row(start, "acme", 9), "egress", "egress", 1, 0),
		with(row(start, "acme", 99), "unmetered", "", 1, 0), row(start, "zeta", 11), with(row(start, "acme", 50), "requests", "requests", 8, 0))
	fold()
	clock.Advance(10 * time.Minute)
	second := clock.Now()
	settle(second, row(start, "acme", 20), row(second, "acme", 30))
	fold()
	clock.Advance(time.Minute)

	slot := func(at time.Time) int64 { return at.Truncate(5 * time.Minute).Unix() }
	list := func(got ledger.SealedSums) (text string) {
		for _, u := range got.Usage {
			text += fmt.Sprintf("%+d %s v%d %s %d/%d %t; ", u.Slot-slot(start), u.Meter, u.Version, u.Plan, u.Admitted, u.Overage, u.Late)
		}
		return text
	}
	all := ledger.SealedQuery{From: slot(start), To: slot(second) + 1, Except: []int64{8}}
	if got, want := list(read(all)), "+0 egress v1 paid 9/0 true; +0 requests v1 free 2/0 true; +0 requests v1 paid 25/0 true; +0 requests v2 paid 7/3 true; +600 requests v1 paid 30/0 true; "; got != want {
		t.Errorf("all:\n got %s\nwant %s", got, want)
	}
	sealedHours(t, books, all)
	late := all
	late.Since = 1
	if got, want := list(read(late)), "+0 egress v1 paid 9/0 false; +0 requests v1 free 2/0 false; +0 requests v1 paid 5/0 false; +0 requests v1 paid 20/0 true; +0 requests v2 paid 7/3 false; +600 requests v1 paid 30/0 true; "; got != want {
		t.Errorf("since the first block:\n got %s\nwant %s", got, want)
	}
	first := all
	first.Height = 1
	if got, want := list(read(first)), "+0 egress v1 paid 9/0 true; +0 requests v1 free 2/0 true; +0 requests v1 paid 5/0 true; +0 requests v2 paid 7/3 true; "; got != want {
		t.Errorf("at the first block:\n got %s\nwant %s", got, want)
	}
	after := ledger.SealedQuery{From: slot(second), To: slot(second) + 1, Since: 1, Late: true}
	if got := read(after); got.Late != slot(start) || len(got.Usage) != 1 || got.Block.Height != 2 {
		t.Errorf("late usage before the range: %+v, want it from %d on", got, slot(start))
	}
	after.Since = 0
	if got := read(after); got.Late != slot(start) {
		t.Errorf("since before any block, late usage is from %d on, want %d", got.Late, slot(start))
	}
	after.Late = false
	if got := read(after); got.Late != 0 {
		t.Errorf("nobody asked for late usage: %+v", got)
	}
	after.Since, after.Late = 2, true
	if got := read(after); got.Late != 0 {
		t.Errorf("without late usage: %+v", got)
	}
	if _, err := books.Sealed(t.Context(), ledger.SealedQuery{Tenant: "acme", Height: 3}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a block that is not there: %v, want ErrNotFound", err)
	}

	// Complete as far as reports say, until one is settled that is in no block.
	if got := read(all); !got.Complete.Equal(second) {
		t.Errorf("complete through %v, want %v", got.Complete, second)
	}
	clock.Advance(time.Minute)
	settle(clock.Now(), row(start, "acme", 1))
	if got := read(all); !got.Complete.Equal(time.Unix(slot(start), 0)) {
		t.Errorf("with usage in no block: complete through %v, want %v", got.Complete, time.Unix(slot(start), 0))
	}
	fold()
	if got := read(all); !got.Complete.Equal(latest(clock.Now())) {
		t.Errorf("folded: complete through %v, want %v", got.Complete, latest(clock.Now()))
	}
	// A correction counts as it is: less is late too.
	if _, err := books.Correct(t.Context(), operator, correction(t, ledger.KindAdjust, "k", true, "billed twice", row(start, "acme", 4))); err != nil {
		t.Fatal(err)
	}
	if got := read(all); !got.Complete.Equal(time.Unix(slot(start), 0)) {
		t.Errorf("with a correction in no block: complete through %v, want %v", got.Complete, time.Unix(slot(start), 0))
	}
	fold()
	late.Since = 3
	if got := read(late); got.Usage[3].Admitted != -4 || !got.Usage[3].Late {
		t.Errorf("a correction: %s, want 4 units less, late", list(got))
	}
}

// sealedHours: sums by the hour equal sums by slot, except hours that are divided. Neither has slots beyond the
// range.
func sealedHours(t *testing.T, books ledger.Books, q ledger.SealedQuery) {
	t.Helper()
	q.Tenant = "acme"
	sum := func(q ledger.SealedQuery, hourly func(hour int64) bool) map[ledger.SealedUsage]ledger.Sum {
		got, err := books.Sealed(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		sums := map[ledger.SealedUsage]ledger.Sum{}
		for _, u := range got.Usage {
			of := ledger.SealedUsage{Slot: u.Slot, Meter: u.Meter, Version: u.Version}
			if hour := u.Slot - u.Slot%3600; hourly(hour) {
				of.Slot = hour
			}
			s := sums[of]
			s.Admitted, s.Overage = s.Admitted+u.Admitted, s.Overage+u.Overage
			sums[of] = s
		}
		return sums
	}
	never := func(int64) bool { return false }
	hour := q.From - q.From%3600
	for _, cut := range [][]int64{nil, {hour}} {
		for _, r := range [][2]int64{{hour, hour + 3600}, {hour, hour + 7200}, {hour - 3600, hour + 900}, {hour + 300, hour + 3600}, {hour + 600, hour + 900}, {hour - 7200, hour}, {q.From, q.To}} {
			q.From, q.To = r[0], r[1]
			whole := func(at int64) bool { return at >= q.From && at+3600 <= q.To && !slices.Contains(cut, at) }
			q.Hourly, q.Cut = false, nil
			want := sum(q, whole)
			q.Hourly, q.Cut = true, cut
			if got := sum(q, never); !maps.Equal(got, want) {
				t.Errorf("hours of %v but %v:\n got %v\nwant %v", r, cut, got, want)
			}
		}
	}
	q.Height = 1 // of which there are no roll-ups any more
	by := q
	by.Hourly, by.Cut = false, nil
	if got, want := sum(q, never), sum(by, never); !maps.Equal(got, want) {
		t.Errorf("hours of block 1: got %v, want %v", got, want)
	}
}
