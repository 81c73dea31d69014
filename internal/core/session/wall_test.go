package session

import (
	"log/slog"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func TestWallFollowsAClockAndNotItsJumps(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	const hour = time.Hour
	type step struct {
		mono time.Duration
		off  time.Duration // of the machine's clock from begin + mono
		want time.Duration // likewise, of what usage is booked under
	}
	for name, steps := range map[string][]step{
		"a right clock":         {{0, 0, 0}, {hour, 0, 0}, {48 * hour, 0, 0}},
		"a clock that is slow":  {{0, 0, 0}, {hour, -time.Second, -time.Second}, {40 * hour, -20 * time.Second, -20 * time.Second}, {80 * hour, -39 * time.Second, -39 * time.Second}},
		"ahead for a minute":    {{0, 0, 0}, {hour, 10 * time.Minute, 0}, {hour + time.Minute, 10 * time.Minute, 0}, {hour + 2*time.Minute, 0, 0}, {3 * hour, 0, 0}},
		"behind for a minute":   {{0, 0, 0}, {hour, -10 * time.Minute, 0}, {hour + time.Minute, -10 * time.Minute, 0}, {hour + 2*time.Minute, 0, 0}},
		"set right for good":    {{0, 0, 0}, {hour, -hour, 0}, {hour + 4*time.Minute, -hour, 0}, {hour + 5*time.Minute, -hour, -hour}, {2 * hour, -hour, -hour}},
		"to and fro":            {{0, 0, 0}, {hour, hour, 0}, {hour + 3*time.Minute, -hour, 0}, {hour + 6*time.Minute, hour, 0}, {hour + 9*time.Minute, -hour, 0}, {hour + 14*time.Minute, -hour, -hour}},
		"again after it passed": {{0, 0, 0}, {hour, hour, 0}, {hour + time.Minute, 0, 0}, {2 * hour, hour, 0}, {2*hour + time.Minute, hour, 0}},
	} {
		var w wall
		for i, s := range steps {
			if got, want := w.at(begin.Add(s.mono+s.off), s.mono), begin.Add(s.mono+s.want); !got.Equal(want) {
				t.Errorf("%s, step %d: booked %v off, want %v", name, i, got.Sub(begin.Add(s.mono)), s.want)
			}
		}
	}
}

// A policy with other slots begins with that of the time which usage is booked under, and not with that of a clock which
// has just jumped.
func TestOtherSlotsBeginWithTheTimeThatIsBooked(t *testing.T) {
	p := &limit.Policy{Version: 2, Slot: time.Minute, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{{Name: "requests", Meter: "requests"}}}}}
	rules, err := limit.CompilePolicy(p)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(t)
	l.wall.ahead -= 10 * time.Minute // as if the machine's clock were that much ahead since a moment ago
	l.onWatched(watchEvent{rules: rules})
	if want := l.slotOf(l.today()); l.current != want {
		t.Errorf("usage is booked under slot %d, want %d", l.current, want)
	}
}

// newLoop returns the loop of a session that nobody runs.
func newLoop(t *testing.T) *Loop {
	t.Helper()
	s, err := New(Config{
		Agent: "gw-1", Log: slog.New(slog.DiscardHandler), MaxBuckets: 16, TenantShare: 100,
		ReportInterval: time.Hour, Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.loop(t.Context())
}
