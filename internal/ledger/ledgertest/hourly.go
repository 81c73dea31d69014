package ledgertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/ledger"
)

// hourly: a tenant's sums are those of its entries, whatever edges tell them apart, and who changed
// above a height is told with the earliest slot of it.
func hourly(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	start := clock.Now().Truncate(time.Hour)
	clock.Advance(3 * time.Hour)
	a := agent{id: "a"}
	settle := func(rows ...ledger.Row) {
		t.Helper()
		if err := wantStatus(t.Context(), s, a.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Fold(t.Context(), clock.Now()); err != nil || n == 0 {
			t.Fatalf("fold: %d, %v", n, err)
		}
	}
	if b, err := books.Newest(t.Context()); err != nil || b.Height != 0 {
		t.Errorf("before the first: %+v, %v", b, err)
	}
	of := func(r ledger.Row, limit, meter string, version, denied int64) ledger.Row {
		r.Limit, r.Meter, r.Version, r.Denied = limit, meter, version, denied
		return r
	}
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	settle(row(at(0), "acme", 1), row(at(5), "acme", 2), row(at(65), "acme", 4), row(at(125), "acme", 8), row(at(0), "zeta", 100))
	settle(of(row(at(10), "acme", 16), "requests", "requests", 2, 3), of(row(at(10), "acme", 0), "unmetered", "", 1, 5),
		of(row(at(10), "acme", 64), "requests", "requests", 9, 0), row(at(70), "beta", 7))
	if b, err := books.Newest(t.Context()); err != nil || b.Height != 2 {
		t.Errorf("newest: %+v, %v", b, err)
	}
	read := func(q ledger.HourlyQuery) (text string) {
		t.Helper()
		q.Tenant, q.Except = "acme", []int64{9}
		all, err := books.Hourly(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			from := h.Start
			if from != 0 {
				from = (from - start.Unix()) / 60
			}
			text += fmt.Sprintf("%d %s v%d %d/%d; ", from, h.Limit, h.Version, h.Admitted, h.Denied)
		}
		return text
	}
	from, to := start.Unix(), start.Unix()+3*3600
	for _, c := range []struct {
		q    ledger.HourlyQuery
		want string
	}{
		{ledger.HourlyQuery{From: from, To: to}, "0 requests v1 15/0; 0 requests v2 16/3; 0 unmetered v1 0/5; "},
		{ledger.HourlyQuery{From: from, To: to, Limit: "unmetered"}, "0 unmetered v1 0/5; "},
		{ledger.HourlyQuery{From: from, To: to, Metered: true}, "0 requests v1 15/0; 0 requests v2 16/3; "},
		{ledger.HourlyQuery{From: from, To: to, Metered: true, Edges: []int64{from, from + 3600}}, "0 requests v1 3/0; 0 requests v2 16/3; 60 requests v1 12/0; "},
		{ledger.HourlyQuery{From: from, To: to, Metered: true, Edges: []int64{from, from + 300, from + 7200}}, "0 requests v1 1/0; 5 requests v1 6/0; 5 requests v2 16/3; 120 requests v1 8/0; "},
		{ledger.HourlyQuery{From: from, To: to, Metered: true, Edges: []int64{from + 4200}}, "0 requests v1 7/0; 0 requests v2 16/3; 70 requests v1 8/0; "},
		{ledger.HourlyQuery{From: from + 300, To: to - 3300}, "0 requests v1 6/0; 0 requests v2 16/3; 0 unmetered v1 0/5; "},
		{ledger.HourlyQuery{From: from + 300, To: from + 600}, "0 requests v1 2/0; "},
		{ledger.HourlyQuery{From: to, To: to}, ""},
	} {
		if got := read(c.q); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.q, got, c.want)
		}
	}
	changed := func(since, height int64, after string, n int) (text string) {
		t.Helper()
		all, err := books.Changed(t.Context(), since, height, after, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			text += fmt.Sprintf("%s %d; ", c.Tenant, (c.First-start.Unix())/60)
		}
		return text
	}
	for _, c := range []struct{ got, want string }{
		{changed(0, 2, "", 10), "acme 0; beta 70; zeta 0; "}, {changed(1, 2, "", 10), "acme 10; beta 70; "}, {changed(0, 1, "", 10), "acme 0; zeta 0; "},
		{changed(0, 2, "acme", 1), "beta 70; "}, {changed(2, 2, "", 10), ""},
	} {
		if c.got != c.want {
			t.Errorf("changed: got %s, want %s", c.got, c.want)
		}
	}
	if _, err := books.Hourly(t.Context(), ledger.HourlyQuery{Edges: make([]int64, ledger.MaxCut+1)}); !errors.Is(err, ledger.ErrQuery) {
		t.Errorf("too many edges: %v", err)
	}
}
