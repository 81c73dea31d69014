package agent

import (
	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/renewal"
)

// Schedule says when buckets are to be looked at. The owner's.
type Schedule struct {
	renewal.Schedule[Entry, *Entry]
}

// When is when the bucket is due; the schedule's.
func (e *Entry) When() *renewal.When { return &e.when }

// Follow has e be looked at when its plan says.
func (s *Schedule) Follow(e *Entry, p *bucket.Plan) {
	s.Set(e, p.Look(e.Flying))
	if p.Renews() && !e.Flying {
		s.Renews(e)
	}
}
