package ledgertest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// hourly: a tenant's sums are those of its entries, at any edges. A tenant that changed above a height is told
// with its earliest slot there.
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
		if n, _, err := s.Fold(t.Context(), clock.Now()); err != nil || n == 0 {
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
	for height, want := range []int64{1, 2, 0} {
		if b, err := books.After(t.Context(), int64(height)); err != nil || b.Height != want || (want != 0) != (b.Folded != time.Time{}) {
			t.Errorf("after %d: %+v, %v, want block %d", height, b, err, want)
		}
	}
	read := func(q ledger.HourlyQuery) (text string) {
		t.Helper()
		q.Tenants, q.Except = []string{"acme"}, []int64{9}
		all, err := books.Hourly(t.Context(), q)
		if err != nil || all.Block.Height != 2 {
			t.Fatal(all.Block, err)
		}
		for _, h := range all.Sums {
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
	all, err := books.Hourly(t.Context(), ledger.HourlyQuery{Tenants: []string{"zeta", "nobody", "acme", "beta"}, From: from, To: to, Metered: true})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, h := range all.Sums {
		text += fmt.Sprintf("%s v%d %d; ", h.Tenant, h.Version, h.Admitted)
	}
	if want := "acme v1 15; acme v2 16; acme v9 64; beta v1 7; zeta v1 100; "; text != want {
		t.Errorf("of many tenants: got %s, want %s", text, want)
	}
	if _, err := books.Hourly(t.Context(), ledger.HourlyQuery{Edges: make([]int64, ledger.MaxCut+1)}); !errors.Is(err, ledger.ErrQuery) {
		t.Errorf("too many edges: %v", err)
	}
}

// added: blocks' additions to the sums of any query bring them up to the last of these blocks. Nothing is added
// to a block that is not this ledger's.
func added(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	start := clock.Now().Truncate(time.Hour)
	clock.Advance(5 * time.Hour)
	from := start.Unix()
	tenants := []string{"a", "b", "c"}
	queries := []ledger.HourlyQuery{
		{From: from, To: from + 5*3600},
		{From: from, To: from + 5*3600, Metered: true, Except: []int64{3}},
		{From: from + 600, To: from + 4*3600 + 300, Limit: "x", Edges: []int64{from + 3600, from + 2*3600 + 900}},
		{From: from + 3600, To: from + 2*3600, Metered: true, Edges: []int64{from + 3600, from + 3900}},
	}
	type name struct {
		tenant  string
		start   int64
		limit   string
		meter   string
		version int64
	}
	sums := make([]map[name]ledger.Sum, len(queries))
	for i := range sums {
		sums[i] = map[name]ledger.Sum{}
	}
	random := rand.New(rand.NewPCG(1, 2))
	a := agent{id: "a"}
	var was ledger.KeptBlockInfo
	for step := range 25 {
		for range 1 + random.IntN(2) { // blocks
			var rows []ledger.Row
			for range 1 + random.IntN(20) {
				r := row(start.Add(time.Duration(random.IntN(60))*5*time.Minute), tenants[random.IntN(3)], int64(random.IntN(100)))
				r.Version, r.Denied = 1+int64(random.IntN(3)), int64(random.IntN(3))
				if r.Limit, r.Meter = "x", "x"; random.IntN(3) == 0 {
					r.Limit, r.Meter, r.Admitted = "y", "", 0
				}
				if !slices.ContainsFunc(rows, func(o ledger.Row) bool {
					return o.Slot == r.Slot && o.Tenant == r.Tenant && o.Limit == r.Limit && o.Version == r.Version
				}) {
					rows = append(rows, r)
				}
			}
			if err := wantStatus(t.Context(), s, a.report(clock.Now(), rows...), ledger.Settled); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Fold(t.Context(), clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
		now, err := books.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		more, ok, err := books.Added(t.Context(), was, now.Height, 10_000)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		for i, q := range queries {
			q.Tenants = tenants
			for j := range more {
				if start, ok := q.Start(&more[j]); ok {
					n := name{more[j].Tenant, start, more[j].Limit, more[j].Meter, more[j].Version}
					sum := sums[i][n]
					sum.Add(more[j].Sum)
					sums[i][n] = sum
				}
			}
			whole, err := books.Hourly(t.Context(), q)
			if err != nil || whole.Block != now {
				t.Fatal(whole.Block, now, err)
			}
			got := map[name]ledger.Sum{}
			for _, h := range whole.Sums {
				got[name{h.Tenant, h.Start, h.Limit, h.Meter, h.Version}] = h.Sum
			}
			if !maps.Equal(got, sums[i]) {
				t.Fatalf("step %d, query %d: added up %v, read %v", step, i, sums[i], got)
			}
		}
		if _, ok, err := books.Added(t.Context(), was, now.Height, len(more)-1); err != nil || ok {
			t.Errorf("more than wanted: %t, %v", ok, err)
		}
		was = now
	}
	other := was
	other.Hash[0]++
	for what, since := range map[string]ledger.KeptBlockInfo{"another block": other, "a block that is not there": {Height: was.Height + 1}} {
		if _, ok, err := books.Added(t.Context(), since, was.Height, 10); err != nil || ok {
			t.Errorf("since %s: %t, %v", what, ok, err)
		}
	}
}
