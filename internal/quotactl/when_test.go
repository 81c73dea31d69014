package quotactl

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// A date is the first instant that shows it, also where clocks skip midnight or repeat it, east and west of UTC; and it
// is where the server's day begins.
func TestDatesBeginWhereTheServersDaysDo(t *testing.T) {
	for _, c := range []struct{ zone, date, want string }{
		{"America/Havana", "2026-03-08", "2026-03-08T05:00:00Z"}, // skipped: 01:00 is first
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z"}, // repeated: the first of two
		{"Atlantic/Azores", "2026-03-29", "2026-03-29T01:00:00Z"},
		{"Atlantic/Azores", "2026-10-25", "2026-10-25T00:00:00Z"},
		{"America/Santiago", "2026-09-06", "2026-09-06T04:00:00Z"},
		{"America/Asuncion", "2023-10-01", "2023-10-01T04:00:00Z"},
		{"Asia/Beirut", "2026-03-29", "2026-03-28T22:00:00Z"},
		{"Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z"},
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z"},
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z"},
		{"", "2026-03-29", "2026-03-29T00:00:00Z"},
	} {
		zone, err := parseZone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseWhen(c.date, time.Unix(0, 0), zone)
		if err != nil || got.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s in %q is %v, %v; want %s", c.date, c.zone, got.UTC(), err, c.want)
		}
		if start, _ := (limit.Rate{Calendar: limit.Day}).Window(got, zone); !start.Equal(got) {
			t.Errorf("%s in %q is %v; the server's day begins at %v", c.date, c.zone, got.UTC(), start.UTC())
		}
	}
	for _, name := range []string{"Local", "Europe/Nowhere", "CET+1"} {
		if zone, err := parseZone(name); err == nil {
			t.Errorf("%q is the zone %v; want a refusal", name, zone)
		}
	}
}
