package billing

import (
	"testing"
	"time"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		zone     string
		day      int
		name     string
		from, to string // UTC
		hours    float64
	}{
		{"UTC", 1, "2026-11", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", 720},
		{"UTC", 1, "2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", 744},
		{"UTC", 1, "2027-02", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z", 672},
		{"UTC", 1, "2028-02", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", 696}, // a leap year
		{"UTC", 1, "2100-02", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z", 672}, // none
		// Clocks change: an hour less, an hour more.
		{"Europe/Berlin", 1, "2026-03", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", 743},
		{"Europe/Berlin", 1, "2026-10", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", 745},
		{"Australia/Lord_Howe", 1, "2026-04", "2026-03-31T13:00:00Z", "2026-04-30T13:30:00Z", 720.5}, // by half an hour
		// Half and quarter hours.
		{"Asia/Kolkata", 1, "2026-11", "2026-10-31T18:30:00Z", "2026-11-30T18:30:00Z", 720},
		{"Asia/Kathmandu", 1, "2026-11", "2026-10-31T18:15:00Z", "2026-11-30T18:15:00Z", 720},
		// Clocks that skip or repeat midnight.
		{"America/Sao_Paulo", 4, "2018-11", "2018-11-04T03:00:00Z", "2018-12-04T02:00:00Z", 719},
		{"America/Havana", 1, "2026-11", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z", 721},
		// A whole day that was not: Samoa went from the 29th to the 31st of December 2011.
		{"Pacific/Apia", 31, "2011-12", "2011-12-30T10:00:00Z", "2012-01-30T10:00:00Z", 744},
		// Anniversaries: the day, or the month's last.
		{"UTC", 15, "2026-11", "2026-11-15T00:00:00Z", "2026-12-15T00:00:00Z", 720},
		{"UTC", 31, "2027-01", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z", 672},
		{"UTC", 31, "2027-02", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z", 744},
		{"UTC", 30, "2028-02", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z", 720},
		{"UTC", 29, "2027-02", "2027-02-28T00:00:00Z", "2027-03-29T00:00:00Z", 696},
		// An offset that is no multiple of the grid: the edge moves up to it.
		{"Africa/Monrovia", 1, "1971-11", "1971-11-01T00:45:00Z", "1971-12-01T00:45:00Z", 720}, // 00:44:30
	} {
		p, err := Cycle{zone(t, c.zone), c.day}.Named(c.name)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		from, to := time.Unix(p.From, 0).UTC().Format(time.RFC3339), time.Unix(p.To, 0).UTC().Format(time.RFC3339)
		if from != c.from || to != c.to || float64(p.Length())/3600 != c.hours || p.Name != c.name {
			t.Errorf("%s, day %d, %s: %s to %s, %.1f hours; want %s to %s, %.1f", c.zone, c.day, c.name, from, to, float64(p.Length())/3600, c.from, c.to, c.hours)
		}
	}
	for _, name := range []string{"", "2026", "2026-13", "2026-1", "2026-11-01", "november", "0001-01", "9999-01"} {
		if p, err := (Cycle{}).Named(name); err == nil {
			t.Errorf("%q is %+v; want a refusal", name, p)
		}
	}
}

// Periods cover all time: each begins where the one before ends, on the grid, and every
// instant is in the one that it is said to be in.
func TestPeriodsFollowOneAnother(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo", "America/Havana", "Pacific/Apia", "Africa/Monrovia"} {
		for day := 1; day <= 31; day++ {
			c := Cycle{zone(t, name), day}
			p := c.At(time.Date(2007, 12, 31, 0, 0, 0, 0, time.UTC).Unix())
			for range 200 {
				next := c.At(p.To)
				if next.From != p.To || next.Length() < 27*86400 || next.Length() > 33*86400 || next.From%Grid != 0 {
					t.Fatalf("%s, day %d: after %+v comes %+v", name, day, p, next)
				}
				if c.At(next.To-1) != next || c.At(next.From) != next {
					t.Fatalf("%s, day %d: %+v does not have its ends", name, day, next)
				}
				if named, err := c.Named(next.Name); err != nil || named != next {
					t.Fatalf("%s, day %d: %s is %+v, want %+v", name, day, next.Name, named, next)
				}
				p = next
			}
		}
	}
}
