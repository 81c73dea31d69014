package ledger

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// Days and months begin where their date does, in every half-hour of five years, in zones that skip or repeat
// midnight. Pages begin where the ones before ended.
func TestPeriods(t *testing.T) {
	unraced.Only(t)
	for _, name := range []string{"UTC", "America/Santiago", "America/Havana", "Atlantic/Azores", "Africa/Cairo", "Asia/Beirut",
		"America/Sao_Paulo", "America/Goose_Bay", "America/Asuncion", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "Europe/Berlin"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []By{ByDay, ByMonth} {
			r := Reading{q: Query{By: by}, zone: zone}
			from := time.Date(2009, 1, 1, 12, 0, 0, 0, time.UTC).Unix()
			start, end := r.period(from)
			for at := from; at < from+int64(5*366*86400); at += 1800 {
				if at >= end {
					last := end
					if start, end = r.period(at); start != last {
						t.Fatalf("%s by %d: a period begins at %s, the one before ended at %s", name, by, time.Unix(start, 0).In(zone), time.Unix(last, 0).In(zone))
					}
				}
				if s, e := r.period(at); s != start || e != end || at < s || at >= e {
					t.Fatalf("%s by %d at %s: got %s to %s, want %s to %s", name, by, time.Unix(at, 0).In(zone),
						time.Unix(s, 0).In(zone), time.Unix(e, 0).In(zone), time.Unix(start, 0).In(zone), time.Unix(end, 0).In(zone))
				}
				day, before := time.Unix(start, 0).In(zone), time.Unix(start-1, 0).In(zone)
				if at == start && day.Day() == before.Day() && day.Month() == before.Month() {
					t.Errorf("%s by %d: %s is no beginning", name, by, day)
				}
			}
		}
	}
}

// A day whose midnight is skipped: the page after it does not repeat the evening before.
func TestPagesWhereMidnightIsSkipped(t *testing.T) {
	zone, err := time.LoadLocation("America/Santiago")
	if err != nil {
		t.Fatal(err)
	}
	first, last := time.Date(2026, 9, 5, 4, 0, 0, 0, time.UTC).Unix(), time.Date(2026, 9, 8, 0, 0, 0, 0, time.UTC).Unix()
	q := Query{By: ByDay, Zone: zone, Limit: 1}
	var days []string
	var sum int64
	for {
		r, err := NewReading(q, first, last)
		if err != nil {
			t.Fatal(err)
		}
		for at := r.From; at < r.To; at += 3600 {
			r.AddTime(at, Sum{Admitted: 1})
		}
		u := r.Usage()
		days = append(days, u.Rows[0].Start.Format("2006-01-02"))
		sum += u.Rows[0].Admitted
		if q.Page = u.NextPage; q.Page == "" {
			break
		}
	}
	if want := (last-first)/3600 + 1; sum != want || len(days) != 3 || days[0] != "2026-09-05" || days[1] != "2026-09-06" || days[2] != "2026-09-07" {
		t.Errorf("got %d units on %v, want %d on the three days", sum, days, want)
	}
}
