package leasing

import (
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Keys tell buckets apart, stay within what stores hold, and never meet.
func TestBucketKey(t *testing.T) {
	long := strings.Repeat("v", limit.MaxValueLen)
	tenant := strings.Repeat("t", limit.MaxTenantLen)
	name := strings.Repeat("n", limit.MaxNameLen)
	buckets := []struct {
		limit, tenant string
		values        []string
	}{
		{"a", "", nil},
		{"a", "", []string{""}},
		{"a", "", []string{"", ""}},
		{"a", "b", nil},
		{"a", "", []string{"b"}},
		{"a", "b", []string{"c"}},
		{"a", "b", []string{"c", "d"}},
		{"a", "b", []string{"cd"}},
		{"a", "b", []string{long}},
		{"a", "b", []string{long, long}},
		{"a", "", []string{"b", long}},
		{"c", "b", []string{long}},
		{name, tenant, nil},
		{name, tenant, []string{long, long, long, long, long, long, long, long}},
	}
	seen := map[string]int{}
	for i, b := range buckets {
		key := bucketKey(b.limit, b.tenant, b.values)
		if len(key) > maxKeyLen {
			t.Errorf("bucket %d: key of %d bytes, want at most %d", i, len(key), maxKeyLen)
		}
		if !strings.HasPrefix(key, b.limit+keySep) {
			t.Errorf("bucket %d: key %q does not begin with its limit's name", i, key)
		}
		if j, ok := seen[key]; ok {
			t.Errorf("buckets %d and %d share the key %q", i, j, key)
		}
		seen[key] = i
		if again := bucketKey(b.limit, b.tenant, b.values); again != key {
			t.Errorf("bucket %d: key %q, then %q", i, key, again)
		}
	}
}

// A calendar window is cut in the limit's zone, and the one after it is known too.
func TestSpecWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := limit.ParseRate("10/day")
	if err != nil {
		t.Fatal(err)
	}
	rule, err := limit.Compile(limit.Limit{Name: "daily", Algorithm: limit.FixedWindow, Rate: rate, Zone: "Europe/Berlin", EpsilonPPM: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	// The day before the clocks go forward: the next day has 23 hours.
	s := spec(rule, time.Date(2026, 3, 28, 12, 0, 0, 0, berlin))
	for _, c := range []struct {
		what string
		got  int64
		want time.Time
	}{
		{"start", s.WindowStart, time.Date(2026, 3, 28, 0, 0, 0, 0, berlin)},
		{"end", s.WindowEnd, time.Date(2026, 3, 29, 0, 0, 0, 0, berlin)},
		{"end of the next", s.NextWindowEnd, time.Date(2026, 3, 30, 0, 0, 0, 0, berlin)},
	} {
		if c.got != c.want.UnixMicro() {
			t.Errorf("%s of the window: got %s, want %s", c.what, time.UnixMicro(c.got).In(berlin), c.want)
		}
	}
	if got, want := s.NextWindowEnd-s.WindowEnd, (23 * time.Hour).Microseconds(); got != want {
		t.Errorf("the day on which clocks go forward has %d us, want %d", got, want)
	}
}

// Strict means that nothing is allowed above the limit, whatever epsilon says.
func TestSpecStrict(t *testing.T) {
	rate, err := limit.ParseRate("10/second")
	if err != nil {
		t.Fatal(err)
	}
	for enforcement, want := range map[limit.Enforcement]int64{limit.Hard: 50_000, limit.Strict: 0} {
		rule, err := limit.Compile(limit.Limit{Name: "x", Algorithm: limit.TokenBucket, Rate: rate, Burst: 20, EpsilonPPM: 50_000, Enforcement: enforcement})
		if err != nil {
			t.Fatal(err)
		}
		if s := spec(rule, time.Now()); s.EpsilonPPM != want || s.Units != 10 || s.Period != 1_000_000 || s.Burst != 20 || s.WindowStart != 0 {
			t.Errorf("%s: got %+v, want epsilon %d, 10 units each 1000000 us, burst 20 and no window", enforcement, s, want)
		}
	}
}
