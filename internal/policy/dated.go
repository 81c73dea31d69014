package policy

import (
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/strict"
)

// moment reads a time: RFC 3339, or a date, which means its midnight in UTC. It returns 0 for anything else.
func moment(f *strict.Collector, fd strict.Field, what string) int64 {
	var v string
	if strict.Word(f, fd, what, &v); v == "" {
		return 0
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, v); err == nil {
			if t.Year() < 1971 || t.Year() > 9998 {
				break
			}
			return t.UnixMilli()
		}
	}
	f.Add(fd.Line, "%s of %s is %s; write a date such as 2026-12-01, which is its midnight in UTC, or a time such as 2026-12-01T00:00:00+01:00", fd.Name, what, limit.Quote(v))
	return 0
}

// undated refuses from and until in a limit that is not a tenant's override.
func (s *LimitSpec) undated(f *strict.Collector, prefix string) {
	for _, key := range datedKeys {
		if line, ok := s.lines[key]; ok {
			f.Add(line, "%slimit %s has %s; only a tenant's override is in effect for a time", prefix, s.Name, key)
		}
	}
}

// dated refuses an override that is never in effect.
func (s *LimitSpec) dated(f *strict.Collector, what string) {
	if s.From != 0 && s.Until != 0 && s.Until <= s.From {
		f.Add(s.lines["until"], "%s: limit %s ends before it begins; until must be after from", what, s.Name)
	}
}

// InEffect are the overrides in effect at a time.
func InEffect(all []LimitSpec, at time.Time) []LimitSpec {
	now := at.UnixMilli()
	return slices.DeleteFunc(slices.Clone(all), func(s LimitSpec) bool {
		return s.From > now || s.Until != 0 && s.Until <= now
	})
}

// Edges are the times after a given one, in Unix milliseconds, at which overrides begin or end.
func Edges(all []LimitSpec, after time.Time) (edges []int64) {
	for i := range all {
		for _, at := range []int64{all[i].From, all[i].Until} {
			if at > after.UnixMilli() {
				edges = append(edges, at)
			}
		}
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}
