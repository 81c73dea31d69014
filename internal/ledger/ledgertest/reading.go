package ledgertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// usage: the same history read whole, cut and in zones, gives what a loop over its
// rows gives; folded, unfolded and half of each.
func usage(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	clock.Advance(40 * time.Hour) // April 2, 15:50
	begin := clock.Now().Add(-80 * time.Hour).Truncate(time.Hour)
	var all []ledger.Row
	g := agent{id: "a"}
	send := func(from, to int) {
		t.Helper()
		var rows []ledger.Row
		for i := from; i < to; i++ {
			r := row(begin.Add(time.Duration(i)*25*time.Minute), fmt.Sprintf("tenant-%d", i%3), int64(i+1))
			r.Limit = []string{"requests", "per-user"}[i%2]
			r.Meter = []string{"requests", ""}[i%2]
			r.Attributes = fmt.Sprintf("endpoint=/%d", i%5)
			r.Version = int64(i % 3)
			r.Denied, r.Overage = int64(i%7), int64(i%2)
			if i%22 == 3 { // a shadow limit's
				r.Admitted, r.Overage, r.Denied, r.Meter, r.Attributes = 0, 0, 5, "", ledger.WouldDeny
			}
			rows = append(rows, r)
		}
		all = append(all, rows...)
		if err := wantStatus(t.Context(), s, g.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
	}
	zone := func(name string) *time.Location {
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	// Every third question is of one version, every third of all but some.
	asked := 0
	which := func() (int64, []int64) {
		asked++
		switch asked % 3 {
		case 0:
			return 2, nil
		case 1:
			return 0, []int64{0, 2}
		}
		return 0, nil
	}
	compare := func(state string) {
		t.Helper()
		ranges := [][2]time.Time{
			{},
			{begin.Add(10 * time.Hour), begin.Add(30 * time.Hour)},
			{begin.Add(10*time.Hour + 20*time.Minute), begin.Add(30*time.Hour + 35*time.Minute)},
			{begin.Add(10*time.Hour + 20*time.Minute), begin.Add(10*time.Hour + 50*time.Minute)},
			{begin.Add(10*time.Hour + 20*time.Minute + time.Nanosecond), begin.Add(70 * time.Hour)},
			{begin.Add(30 * time.Hour), begin.Add(10 * time.Hour)},
		}
		zones := []*time.Location{nil, zone("Europe/Berlin"), zone("Asia/Kolkata"), zone("Asia/Kathmandu"), zone("Australia/Lord_Howe")}
		for by := ledger.ByTotal; by <= ledger.ByAttribute; by++ {
			for _, tenant := range []string{"", "tenant-1", "nobody"} {
				for _, r := range ranges {
					for i, z := range zones {
						if i > 0 && by != ledger.ByDay && by != ledger.ByMonth {
							break // hours are UTC's, names have none
						}
						q := ledger.Query{Tenant: tenant, From: r[0], To: r[1], By: by, Zone: z}
						q.Version, q.Except = which()
						if asked%5 == 4 {
							q.Of = &ledger.Names{Limit: "requests", Meter: "requests", Attributes: fmt.Sprintf("endpoint=/%d", asked/5%5)}
						}
						u, err := s.Usage(t.Context(), q)
						if err != nil {
							t.Fatalf("%s: %+v: %v", state, q, err)
						}
						if got, want := printUsage(u.Rows), printUsage(sumUp(all, q)); got != want {
							t.Fatalf("%s: %+v: got\n%swant\n%s", state, q, got, want)
						}
					}
				}
			}
		}
	}
	compare("empty")
	send(0, 100)
	compare("unfolded")
	if _, err := drain(t.Context(), s, clock.Now()); err != nil {
		t.Fatal(err)
	}
	compare("folded")
	send(60, 190)
	compare("half folded")
}

// sumUp answers a query the plain way.
func sumUp(rows []ledger.Row, q ledger.Query) []ledger.UsageRow {
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	sums := map[ledger.UsageRow]*ledger.UsageRow{}
	for _, r := range rows {
		at := time.Unix(r.Slot, 0).In(zone)
		if q.Version != 0 && r.Version != q.Version || q.Version == 0 && slices.Contains(q.Except, r.Version) {
			continue
		}
		if q.Of != nil && *q.Of != (ledger.Names{Limit: r.Limit, Meter: r.Meter, Attributes: r.Attributes}) {
			continue
		}
		if q.Tenant != "" && r.Tenant != q.Tenant || !q.From.IsZero() && at.Before(q.From) || !q.To.IsZero() && !at.Before(q.To) {
			continue
		}
		key := ledger.UsageRow{Tenant: q.Tenant}
		switch q.By {
		case ledger.ByHour:
			key.Start = at.Truncate(time.Hour).In(zone)
		case ledger.ByDay:
			key.Start = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, zone)
		case ledger.ByMonth:
			key.Start = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, zone)
		case ledger.ByAttribute:
			key.Attributes = r.Attributes
			fallthrough
		case ledger.ByLimit:
			key.Limit, key.Meter = r.Limit, r.Meter
		}
		wouldDeny := r.Meter == "" && r.Attributes == ledger.WouldDeny
		switch {
		case key.Limit == "" && wouldDeny:
			continue
		case key.Limit == "" && r.Meter == "":
			r.Admitted, r.Overage = 0, 0
		case wouldDeny:
			key.Attributes = r.Attributes
		}
		if sums[key] == nil {
			fresh := key
			sums[key] = &fresh
		}
		sums[key].Admitted += r.Admitted
		sums[key].Overage += r.Overage
		sums[key].Denied += r.Denied
	}
	var out []ledger.UsageRow
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b ledger.UsageRow) int {
		if c := a.Start.Compare(b.Start); c != 0 {
			return c
		}
		return strings.Compare(a.Limit+"\x00"+a.Meter+"\x00"+a.Attributes, b.Limit+"\x00"+b.Meter+"\x00"+b.Attributes)
	})
	return out
}

func printUsage(rows []ledger.UsageRow) string {
	var b strings.Builder
	for _, r := range rows {
		var words []string
		if !r.Start.IsZero() {
			words = append(words, r.Start.Format("2006-01-02T15:04Z07:00"))
		}
		for _, w := range []string{r.Tenant, r.Limit, r.Meter, r.Attributes} {
			if w != "" {
				words = append(words, w)
			}
		}
		words = append(words, fmt.Sprintf("admitted=%d", r.Admitted))
		if r.Overage != 0 {
			words = append(words, fmt.Sprintf("overage=%d", r.Overage))
		}
		if r.Denied != 0 {
			words = append(words, fmt.Sprintf("denied=%d", r.Denied))
		}
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	return b.String()
}

// pages: page by page is the whole, whatever the size of a page, and a page of
// another query is refused.
func pages(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	g := agent{id: "a"}
	for part := range 2 {
		var rows []ledger.Row
		for i := range 37 {
			r := row(clock.Now().Add(-time.Duration(i)*17*time.Minute), "acme", int64(i+1))
			r.Attributes = fmt.Sprintf("user=%d", (i*7+part*20)%50)
			r.Limit = fmt.Sprintf("limit-%d", i%3)
			rows = append(rows, r)
		}
		if err := wantStatus(t.Context(), s, g.report(clock.Now(), rows...), ledger.Settled); err != nil {
			t.Fatal(err)
		}
		if part == 0 {
			if _, err := drain(t.Context(), s, clock.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for by := ledger.ByTotal; by <= ledger.ByAttribute; by++ {
		q := ledger.Query{Tenant: "acme", By: by, From: clock.Now().Add(-9 * time.Hour)}
		whole, err := s.Usage(t.Context(), q)
		if err != nil || whole.NextPage != "" {
			t.Fatalf("by %d: %v, next page %q, want all in one", by, err, whole.NextPage)
		}
		for size := 1; size <= 5; size++ {
			q.Limit, q.Page = size, ""
			var rows []ledger.UsageRow
			for {
				u, err := s.Usage(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				if len(u.Rows) > size {
					t.Fatalf("by %d: a page of %d has %d rows", by, size, len(u.Rows))
				}
				rows = append(rows, u.Rows...)
				if q.Page = u.NextPage; q.Page == "" {
					break
				}
				if len(rows) > len(whole.Rows) {
					t.Fatalf("by %d: pages of %d do not end", by, size)
				}
			}
			if got, want := printUsage(rows), printUsage(whole.Rows); got != want {
				t.Errorf("by %d in pages of %d: got\n%swant\n%s", by, size, got, want)
			}
		}
	}
	u, err := s.Usage(t.Context(), ledger.Query{By: ledger.ByAttribute, Limit: 1})
	if err != nil || u.NextPage == "" {
		t.Fatalf("got next page %q, %v", u.NextPage, err)
	}
	for _, page := range []string{u.NextPage, "x", "!"} {
		if _, err := s.Usage(t.Context(), ledger.Query{By: ledger.ByHour, Page: page}); err == nil {
			t.Errorf("page %q by hour: got no error, want ErrQuery", page)
		}
	}
}

// agents: every epoch that is not closed is listed, once, whatever the page size.
func agents(t *testing.T, fresh func(testing.TB) Engine) {
	e, clock := fresh(t), NewClock()
	s := e.Open(t, ledger.Options{Now: clock.Now})
	var want []string
	for i := range 4 {
		for epoch := range int64(3) {
			g := agent{id: fmt.Sprintf("agent-%d", i), epoch: epoch}
			r := g.report(clock.Now(), row(clock.Now(), "acme", 1))
			r.Closed = epoch == 1 || i == 3
			r.Digest = r.Sum()
			if err := wantStatus(t.Context(), s, r, ledger.Settled); err != nil {
				t.Fatal(err)
			}
		}
		if i == 3 {
			want = append(want, "agent-3/2 closed")
			continue
		}
		want = append(want, fmt.Sprintf("agent-%d/2 open", i), fmt.Sprintf("agent-%d/0 open", i))
	}
	for size := 1; size <= 8; size++ {
		var got []string
		after := ""
		for {
			states, err := s.Agents(t.Context(), after, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range states {
				got = append(got, fmt.Sprintf("%s/%d %s", a.Agent, a.Epoch, a.State))
			}
			if len(states) < size {
				break
			}
			after = states[len(states)-1].Cursor()
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: got %v, want %v", size, got, want)
		}
	}
	states, err := s.Agents(t.Context(), "agent-1", 1)
	if err != nil || len(states) != 1 || states[0].Agent != "agent-2" {
		t.Errorf("after agent-1: got %v, %v, want agent-2", states, err)
	}
}
