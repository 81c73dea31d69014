package limit

import (
	"testing"
	"time"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		rate, zone, now, start, end string
	}{
		{"1/second", "UTC", "2026-03-01T12:00:00.7Z", "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"},
		{"1/hour", "Asia/Kolkata", "2026-03-01T12:10:00Z", "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"}, // UTC hours, half-hour zone or not
		{"1/30s", "UTC", "2026-03-01T12:00:59Z", "2026-03-01T12:00:30Z", "2026-03-01T12:01:00Z"},
		{"1/30s", "UTC", "1969-12-31T23:59:59Z", "1969-12-31T23:59:30Z", "1970-01-01T00:00:00Z"},
		{"1/day", "UTC", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"1/day", "UTC", "2026-03-01T23:59:59.999999Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"1/day", "Asia/Kolkata", "2026-03-01T18:30:00Z", "2026-03-01T18:30:00Z", "2026-03-02T18:30:00Z"},
		{"1/day", "Asia/Kathmandu", "2026-03-01T18:14:59Z", "2026-02-28T18:15:00Z", "2026-03-01T18:15:00Z"},
		// 23 and 25 hours.
		{"1/day", "America/New_York", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"1/day", "America/New_York", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"1/day", "Europe/Berlin", "2026-03-29T10:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"1/day", "Europe/Berlin", "2026-10-25T10:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"1/week", "Europe/Berlin", "2026-10-25T23:30:00Z", "2026-10-25T23:00:00Z", "2026-11-01T23:00:00Z"}, // a Monday, half an hour in
		{"1/month", "Australia/Lord_Howe", "2026-10-15T00:00:00Z", "2026-09-30T13:30:00Z", "2026-10-31T13:00:00Z"},
		{"1/hour", "America/New_York", "2026-11-01T05:59:59Z", "2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z"}, // shown twice, and two windows
		{"1/year", "Asia/Kolkata", "2026-12-31T18:30:00Z", "2026-12-31T18:30:00Z", "2027-12-31T18:30:00Z"},
		// Half an hour of daylight saving.
		{"1/day", "Australia/Lord_Howe", "2026-04-04T20:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		// Midnight skipped: the day begins at 01:00.
		{"1/day", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"1/day", "Africa/Cairo", "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		// Midnight repeated: the day begins the first time.
		{"1/day", "America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// Put back from 00:01 to 23:01: the new day had begun, and goes on.
		{"1/day", "America/St_Johns", "2008-11-02T02:45:00Z", "2008-11-02T02:30:00Z", "2008-11-03T03:30:00Z"},
		// A whole day skipped.
		{"1/day", "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"1/day", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"1/week", "UTC", "2026-03-01T12:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"}, // a Sunday
		{"1/week", "UTC", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"}, // a Monday
		{"1/week", "America/New_York", "2026-03-08T12:00:00Z", "2026-03-02T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"1/month", "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"1/month", "UTC", "2026-12-31T23:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"1/month", "Asia/Tokyo", "2026-12-31T23:00:00Z", "2026-12-31T15:00:00Z", "2027-01-31T15:00:00Z"},
		{"1/month", "America/New_York", "2026-03-31T12:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"},
		{"1/year", "Pacific/Auckland", "2026-01-01T00:00:00Z", "2025-12-31T11:00:00Z", "2026-12-31T11:00:00Z"},
	} {
		r, err := ParseRate(c.rate)
		if err != nil {
			t.Fatal(err)
		}
		now, _ := time.Parse(time.RFC3339Nano, c.now)
		start, end := r.Window(now, zone(t, c.zone))
		if got, got2 := start.UTC().Format(time.RFC3339Nano), end.UTC().Format(time.RFC3339Nano); got != c.start || got2 != c.end {
			t.Errorf("%s in %s at %s: window [%s, %s), want [%s, %s)", c.rate, c.zone, c.now, got, got2, c.start, c.end)
		}
	}
}

// Days found by walking the clock quarter by quarter agree with Window, over
// years in which zones did everything that zones do.
func TestWindowAgainstTheClock(t *testing.T) {
	for _, c := range []struct {
		zone string
		year int
	}{
		{"UTC", 2026}, {"America/New_York", 2026}, {"Europe/London", 2026}, {"Australia/Lord_Howe", 2026},
		{"America/Sao_Paulo", 2018}, {"America/Havana", 2026}, {"Africa/Cairo", 2026}, {"Asia/Beirut", 2026},
		{"Pacific/Apia", 2011}, {"America/St_Johns", 2010}, {"Asia/Pyongyang", 2015}, {"America/Caracas", 2016}, {"Asia/Kathmandu", 2026},
	} {
		loc := zone(t, c.zone)
		from, to := time.Date(c.year, 1, 1, 0, 0, 0, 0, loc), time.Date(c.year+1, 1, 1, 0, 0, 0, 0, loc)
		var starts []time.Time // the first instant of each date that the clock shows
		last := ""
		for now := from; !now.After(to); now = now.Add(15 * time.Minute) {
			if date := now.Format("2006-01-02"); date > last {
				last = date
				starts = append(starts, now)
			}
		}
		day := Rate{Units: 1, Per: 24 * time.Hour, Calendar: Day}
		at := from
		for i := 0; i+1 < len(starts); i++ {
			start, end := day.Window(at, loc)
			if !start.Equal(starts[i]) || !end.Equal(starts[i+1]) {
				t.Errorf("%s: day window of %v is [%v, %v), the clock says [%v, %v)", c.zone, at, start, end, starts[i], starts[i+1])
				break
			}
			for _, in := range []time.Time{start, start.Add(end.Sub(start) / 2), end.Add(-1)} {
				if s, e := day.Window(in, loc); !s.Equal(start) || !e.Equal(end) {
					t.Errorf("%s: day window of %v is [%v, %v), want [%v, %v)", c.zone, in, s, e, start, end)
				}
			}
			at = end
		}
	}
}
