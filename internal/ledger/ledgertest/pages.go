package ledgertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// quarantinePages reads what is in quarantine in pages of bounded bytes, however many rows are asked for, and misses none.
func quarantinePages(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	books := booksOf(s)
	a := agent{id: "a"}
	const reports = 5
	for range reports {
		var rows []ledger.Row
		for i := range 1500 {
			r := row(clock.Now(), "acme", 1)
			r.Attributes = fmt.Sprintf("user=%d-%s", i, strings.Repeat("x", 230))
			rows = append(rows, r)
		}
		bad := a.report(clock.Now(), rows...)
		bad.Digest[0]++
		if err := wantStatus(t.Context(), s, bad, ledger.Rejected); err != nil {
			t.Fatal(err)
		}
		a = agent{id: a.id + "a"}
	}
	const n = 100
	seen, after := 0, int64(0)
	for {
		page, err := books.Quarantine(t.Context(), ledger.QuarantineQuery{N: n, After: after})
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for i := range page {
			if size >= ledger.MaxKeptPage {
				t.Fatalf("a page of %d rows goes on after %d bytes, want an end at %d", len(page), size, ledger.MaxKeptPage)
			}
			size += page[i].Size()
		}
		if seen += len(page); !ledger.More(page, n) {
			break
		}
		after = page[len(page)-1].ID
	}
	if seen != reports {
		t.Errorf("the pages have %d reports, want %d", seen, reports)
	}
}
