package limit

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Rate
		text string // as written back; empty: as read
	}{
		{in: "100/hour", want: Rate{100, time.Hour, Hour}},
		{in: "1/second", want: Rate{1, time.Second, Second}},
		{in: "7/s", want: Rate{7, time.Second, Second}, text: "7/second"},
		{in: "7/min", want: Rate{7, time.Minute, Minute}, text: "7/minute"},
		{in: "7/h", want: Rate{7, time.Hour, Hour}, text: "7/hour"},
		{in: "7/d", want: Rate{7, 24 * time.Hour, Day}, text: "7/day"},
		{in: "3/week", want: Rate{3, 168 * time.Hour, Week}},
		{in: "1000000000/month", want: Rate{MaxUnits, 720 * time.Hour, Month}},
		{in: "1/year", want: Rate{1, 8760 * time.Hour, Year}},
		{in: "10/30s", want: Rate{10, 30 * time.Second, NoCalendar}},
		{in: "1/500ms", want: Rate{1, 500 * time.Millisecond, NoCalendar}},
		{in: "10/60s", want: Rate{10, time.Minute, NoCalendar}, text: "10/1m"},
		{in: "10/1h30m", want: Rate{10, 90 * time.Minute, NoCalendar}},
		{in: "10/2h", want: Rate{10, 2 * time.Hour, NoCalendar}},
		{in: "10/1.5s", want: Rate{10, 1500 * time.Millisecond, NoCalendar}},
		{in: "10/1ms", want: Rate{10, time.Millisecond, NoCalendar}},
		{in: "10/8784h", want: Rate{10, MaxPer, NoCalendar}},
		{in: "10/1h0m10s", want: Rate{10, time.Hour + 10*time.Second, NoCalendar}},
	} {
		got, err := ParseRate(c.in)
		if err != nil || got != c.want {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", c.in, got, err, c.want)
			continue
		}
		text := c.text
		if text == "" {
			text = c.in
		}
		if got.String() != text {
			t.Errorf("ParseRate(%q).String() = %q, want %q", c.in, got, text)
		}
	}
}

func TestParseRateFaults(t *testing.T) {
	for _, c := range []struct{ in, says string }{
		{"", "write units/time"},
		{"100", "write units/time"},
		{"/hour", "not a whole number"},
		{"0/hour", "at least 1"},
		{"-5/hour", "cannot be negative"},
		{"+5/hour", "not a whole number"},
		{"1.5/hour", "not a whole number"},
		{"1e3/hour", "not a whole number"},
		{"1_000/hour", "not a whole number"},
		{"010/hour", "leading zeros"},
		{"1000000001/hour", "at most 1000000000"},
		{"99999999999999999999/hour", "at most 1000000000"},
		{"10/", "not a unit"},
		{"10/m", "minute or a month"},
		{"10/fortnight", "not a unit"},
		{"10/Hour", "not a unit"},
		{"10/ hour", "not a unit"},
		{"10/hour ", "not a unit"},
		{"10/+30s", "not a unit"},
		{"10/-30s", "not a unit"},
		{"10/30", "not a duration"},
		{"10/30s/2", "not a duration"},
		{"10/0s", "1ms to 366 days"},
		{"10/999us", "1ms to 366 days"},
		{"10/8785h", "1ms to 366 days"},
		{"10/99999999999h", "not a duration"},
		{"10/1000500ns", "whole microseconds"},
	} {
		got, err := ParseRate(c.in)
		if !errors.Is(err, ErrRate) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("ParseRate(%q) = %+v, %v; want an error that says %q", c.in, got, err, c.says)
		}
		if got != (Rate{}) {
			t.Errorf("ParseRate(%q) = %+v with an error, want the zero rate", c.in, got)
		}
	}
}

// What no engine holds is refused where it is written, and the message says what is allowed.
func TestRatesAreBounded(t *testing.T) {
	for _, in := range []string{"1000001/1ms", "1000000000/999ms", "1000000000/1ms"} {
		if _, err := ParseRate(in); err == nil || !strings.Contains(err.Error(), "at most 1000000000 units a second") {
			t.Errorf("%s: got %v, want what is allowed", in, err)
		}
	}
	for _, in := range []string{"1000000/1ms", "1000000000/1s", "1000000000/second", "1000000000/8784h"} {
		if _, err := ParseRate(in); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// No id is another's once a URL's path is cleaned.
func TestTenantsInPaths(t *testing.T) {
	for _, id := range []string{"a", "a/b", "a.b/..c", "...", "org/team/key", "a@b:c"} {
		if !ValidTenant(id) {
			t.Errorf("%s is refused", id)
		}
	}
	for _, id := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/..", "../a"} {
		if ValidTenant(id) {
			t.Errorf("%s is taken", id)
		}
	}
}

func TestMicroPerSecond(t *testing.T) {
	for in, want := range map[string]int64{
		"100/second": 100_000_000, "1/hour": 277, "1/1ms": 1_000_000_000, "1000000000/second": 1_000_000_000_000_000, "1000000/1ms": 1_000_000_000_000_000, "3600/hour": 1_000_000,
	} {
		r, err := ParseRate(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.MicroPerSecond(); got != want {
			t.Errorf("%s: %d micro-tokens a second, want %d", in, got, want)
		}
	}
	if got := (Rate{}).MicroPerSecond(); got != 0 {
		t.Errorf("no rate: %d micro-tokens a second, want 0", got)
	}
}

// FuzzParseRate: a rate that can be read is within bounds, and reads the same when written back. Its windows
// hold the time they were asked for.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"100/hour", "10/30s", "1/500ms", "1/year", "0/s", "9/m", "1/1.5h", "/", "10/0.001s", "1/h", "99999999999/day"} {
		f.Add(s, int64(1_700_000_000_000_000))
	}
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string, us int64) {
		r, err := ParseRate(s)
		if err != nil {
			if !errors.Is(err, ErrRate) || r != (Rate{}) {
				t.Fatalf("ParseRate(%q) = %+v, %v", s, r, err)
			}
			return
		}
		if err := r.Validate(); err != nil || r.Units < 1 {
			t.Fatalf("ParseRate(%q) = %+v, which is not valid: %v", s, r, err)
		}
		again, err := ParseRate(r.String())
		if err != nil || again != r {
			t.Fatalf("ParseRate(%q) = %+v, written %q, reads %+v, %v", s, r, r.String(), again, err)
		}
		if m := r.MicroPerSecond(); m < 0 || m > 1<<53-1 {
			t.Fatalf("%q is %d micro-tokens a second", s, m)
		}
		us %= 4e15 // years 1844 to 2096
		now := time.UnixMicro(us)
		start, end := r.Window(now, zone)
		if now.Before(start) || !now.Before(end) {
			t.Fatalf("%q: window of %v is [%v, %v)", s, now, start, end)
		}
		if s2, e2 := r.Window(start, zone); !s2.Equal(start) || !e2.Equal(end) {
			t.Fatalf("%q: window of its own start %v is [%v, %v), want end %v", s, start, s2, e2, end)
		}
		if s2, _ := r.Window(end, zone); !s2.Equal(end) {
			t.Fatalf("%q: the next window begins at %v, want %v", s, s2, end)
		}
	})
}
