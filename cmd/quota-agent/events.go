package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/f4ee788f/quota/internal/doors"
	"github.com/f4ee788f/quota/pkg/client"
)

// maxEventsKnown is client.WithEventsKnown's.
const maxEventsKnown = 1 << 24

// eventsConfig is the flags of usage that others measured.
type eventsConfig struct {
	attributes list
	costs      list
	known      int
	anyhow     bool
}

// flags declares them.
func (e *eventsConfig) flags(f *flag.FlagSet) {
	f.Var(&e.attributes, "event-attribute", "an attribute of an event and where it comes from, `NAME=SOURCE`; may be repeated (default "+strings.Join(doors.DefaultEventAttributes(), "; ")+")")
	f.Var(&e.costs, "event-cost", "a cost of an event and where it comes from, `NAME=SOURCE`; may be repeated; what the policy does not name is left out (default "+strings.Join(doors.DefaultEventCosts(), "; ")+")")
	f.IntVar(&e.known, "events-known", client.DefaultEventsKnown, "most events whose ids are known, a `NUMBER`, for 24 hours each; with more the tenant that has the most forgets its oldest")
	f.BoolVar(&e.anyhow, "events-without-journal", false, "book events without --journal too; a kill then loses some, and what comes again after it is booked twice")
}

// fill sets the defaults.
func (e *eventsConfig) fill() {
	if len(e.attributes) == 0 {
		e.attributes = doors.DefaultEventAttributes()
	}
	if len(e.costs) == 0 {
		e.costs = doors.DefaultEventCosts()
	}
}

func (e *eventsConfig) mapping() (doors.EventMap, error) {
	m, err := doors.ParseEventMap(e.attributes, e.costs)
	if err != nil {
		return m, fmt.Errorf("--event-attribute, --event-cost: %w", err)
	}
	return m, nil
}

// validate reports every fault.
func (e *eventsConfig) validate() error {
	_, err := e.mapping()
	if e.known < 1 || e.known > maxEventsKnown {
		err = errors.Join(err, fmt.Errorf("--events-known is %d; it must be from 1 to %d", e.known, maxEventsKnown))
	}
	return err
}

func (e *eventsConfig) options() []client.Option {
	opts := []client.Option{client.WithEventsKnown(e.known)}
	if e.anyhow {
		opts = append(opts, client.WithoutEventJournal())
	}
	return opts
}
