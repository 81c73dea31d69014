package ledgertest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// endless: sums that would overflow end at ledger.MaxSum, and neither folding nor
// reading fails on them. They are put there by hand, for it takes some ten thousand
// reports of a hostile agent to get there.
func endless(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	a := agent{id: "a"}
	settle := func() {
		t.Helper()
		r := row(clock.Now(), "acme", 1<<40)
		r.Denied, r.Overage = ledger.MaxReportUnits, 1
		if err := wantStatus(t.Context(), s, a.report(clock.Now(), r), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	fold := func() {
		t.Helper()
		if _, err := drain(t.Context(), s, clock.Now()); err != nil {
			t.Fatalf("fold: %v", err)
		}
	}
	settle()
	clock.Advance(time.Hour)
	settle()
	fold()
	e.Query(t, fmt.Sprintf("UPDATE rollups SET admitted = %d, denied = %d RETURNING hour", int64(math.MaxInt64), math.MaxInt64-ledger.MaxReportUnits/2))
	for _, state := range []string{"not folded yet", "folded"} {
		if state == "folded" {
			fold()
		} else {
			settle()
		}
		for _, by := range []ledger.By{ledger.ByTotal, ledger.ByLimit, ledger.ByAttribute, ledger.ByDay} {
			u, err := s.Usage(t.Context(), ledger.Query{Tenant: "acme", By: by})
			if err != nil {
				t.Fatalf("usage by %d, %s: %v", by, state, err)
			}
			if by == ledger.ByDay {
				continue // a part of it each
			}
			if len(u.Rows) != 1 || u.Rows[0].Admitted != ledger.MaxSum || u.Rows[0].Denied != ledger.MaxSum || u.Rows[0].Overage != 3 {
				t.Errorf("usage by %d, %s: got %+v, want one row of %d, 3, %d", by, state, u.Rows, int64(ledger.MaxSum), int64(ledger.MaxSum))
			}
		}
	}
}

// wide: a report may name much in few bytes, for it writes each string once. Here it is 20 MB of keys, and 800
// MB of rows that go to quarantine. Both settle and fold.
func wide(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	const rows = 8_000
	report := func(a *agent, attributes string) ledger.Report {
		all := make([]ledger.Row, rows)
		for i := range all {
			all[i] = row(clock.Now(), fmt.Sprintf("%s%d", a.id, i), 1)
			all[i].Attributes = attributes
		}
		return a.report(clock.Now(), all...)
	}
	good, bad := agent{id: "good"}, agent{id: "bad"}
	reports := []ledger.Report{report(&good, strings.Repeat("x", ledger.MaxAttributes)), report(&bad, strings.Repeat("y", 100_000)),
		report(&good, strings.Repeat("z", ledger.MaxAttributes))}
	for _, r := range reports {
		if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	kept := e.Query(t, "SELECT count(*), sum(length(body)) FROM quarantine")[0]
	if n := number(t, kept[0]); n != rows {
		t.Errorf("in quarantine: got %d rows, want %d", n, rows)
	}
	if n, most := number(t, kept[1]), int64(8*len(reports[1].Payload)); n > most {
		t.Errorf("in quarantine: got %d bytes of a report of %d, want at most %d", n, len(reports[1].Payload), most)
	}
	// The two good reports are too much for one block, and a fold says that it left one.
	folded := 0
	for _, want := range []bool{true, false} {
		n, left, err := s.Fold(t.Context(), clock.Now())
		if err != nil || n == 0 || left != want {
			t.Fatalf("fold: got %d reports, left %v, %v, want some, %v", n, left, err, want)
		}
		folded += n
	}
	if folded != len(reports) {
		t.Fatalf("folded %d reports, want %d", folded, len(reports))
	}
	if n, left, err := s.Fold(t.Context(), clock.Now()); err != nil || n != 0 || left {
		t.Fatalf("fold with nothing to do: got %d reports, left %v, %v", n, left, err)
	}
	if err := wantTotal(t.Context(), s, "", 2*rows); err != nil {
		t.Error(err)
	}
}

// shared: agents that report the same keys and slot get one entry for each key. That holds even if their
// reports together exceed one page. The ledger grows with keys, not with agents.
func shared(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	const agents, keys = 30, 500
	for i := range agents {
		a := agent{id: fmt.Sprintf("a%d", i)}
		all := make([]ledger.Row, keys)
		for k := range all {
			all[k] = row(clock.Now(), fmt.Sprintf("t%04d", k), 1)
			all[k].Attributes = strings.Repeat("x", ledger.MaxAttributes)
		}
		r := a.report(clock.Now(), all...)
		if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	if read := agents * keys * ledger.MaxAttributes; read <= ledger.MaxPageBytes {
		t.Fatalf("%d bytes are one page's", read)
	}
	if blocks, err := drain(t.Context(), s, clock.Now()); err != nil || blocks != 1 {
		t.Fatalf("fold: got %d blocks, %v, want 1", blocks, err)
	}
	if n := number(t, e.Query(t, "SELECT count(*) FROM entries")[0][0]); n != keys {
		t.Errorf("got %d entries, want %d", n, keys)
	}
	if err := wantTotal(t.Context(), s, "", agents*keys); err != nil {
		t.Error(err)
	}
}
