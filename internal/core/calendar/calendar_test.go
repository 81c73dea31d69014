package calendar

import (
	"testing"
	"time"
	_ "time/tzdata" // zones mean the same on machines without a database of them
)

// zones are those whose clocks did at midnight whatever clocks do there.
var zones = []string{
	"UTC", "America/Havana", "Atlantic/Azores", "America/Santiago", "America/Asuncion", "Asia/Beirut", "Africa/Cairo", "America/Sao_Paulo",
	"America/Goose_Bay", "America/St_Johns", "America/Scoresbysund", "America/New_York", "America/Caracas", "America/Godthab", "Africa/Monrovia",
	"Africa/Casablanca", "Asia/Amman", "Asia/Damascus", "Asia/Gaza", "Asia/Tehran", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Kolkata",
	"Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Easter", "Antarctica/Troll", "Europe/Berlin", "Europe/Lisbon",
}

func load(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// scan finds the first minute at which the clock shows the date, or a later one, by looking at every minute. In these
// zones clocks turn at whole minutes of universal time, but for Monrovia's, which showed seconds until 1972.
func scan(date time.Time, zone *time.Location) time.Time {
	for t := date.Add(-27 * time.Hour); ; t = t.Add(time.Minute) {
		y, m, d := t.In(zone).Date()
		if !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(date) {
			return t
		}
	}
}

// A day begins at the first instant that shows its date: on each day around each change of clocks of 70 years.
func TestStartIsTheFirstInstantOfTheDate(t *testing.T) {
	skipped := 0
	for _, name := range zones {
		zone := load(t, name)
		for at := time.Date(1973, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2043; {
			_, turn := at.In(zone).ZoneBounds()
			if turn.IsZero() {
				break
			}
			if !turn.After(at) { // as ZoneBounds has it at the end of leap years after 2037
				at = at.Add(48 * time.Hour)
				continue
			}
			at = turn
			y, m, d := turn.In(zone).Date()
			for day := d - 1; day <= d+1; day++ {
				want := scan(time.Date(y, m, day, 0, 0, 0, 0, time.UTC), zone)
				if got := Start(y, m, day, zone); !got.Equal(want) {
					t.Errorf("%s: %d-%02d-%02d begins at %v, want %v", name, y, m, day, got, want)
				}
				if want.In(zone).Hour() != 0 {
					skipped++
				}
			}
		}
	}
	if skipped < 100 {
		t.Errorf("%d days begin after midnight; the zones here have more", skipped)
	}
}

// Days, weeks, months and years cut time into pieces: no gap, no overlap, and every instant is in the piece that has it.
func TestSpansPartitionTime(t *testing.T) {
	for _, name := range zones {
		zone := load(t, name)
		for unit, longest := range []time.Duration{Day: 49 * time.Hour, Week: 8 * 24 * time.Hour, Month: 32 * 24 * time.Hour, Year: 367 * 24 * time.Hour} {
			start, end := Span(time.Date(1970, 1, 1, 12, 0, 0, 0, time.UTC), Unit(unit), zone)
			for end.Year() < 2040 {
				if !start.Before(end) || end.Sub(start) > longest {
					t.Fatalf("%s, unit %d: [%v, %v)", name, unit, start, end)
				}
				for _, in := range []time.Time{start, start.Add(time.Hour), end.Add(-time.Hour), end.Add(-1)} {
					if s, e := Span(in, Unit(unit), zone); !s.Equal(start) || !e.Equal(end) {
						t.Fatalf("%s, unit %d: %v is in [%v, %v), want [%v, %v)", name, unit, in, s, e, start, end)
					}
				}
				next, after := Span(end, Unit(unit), zone)
				if !next.Equal(end) {
					t.Fatalf("%s, unit %d: after %v comes one that begins at %v", name, unit, end, next)
				}
				start, end = next, after
			}
		}
	}
}
