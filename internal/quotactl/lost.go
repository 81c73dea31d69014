package quotactl

import (
	"fmt"
	"io"
	"strings"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// printLost says what may be missing for good: a line for each start of an agent that ended without its last report.
func printLost(w io.Writer, lost []*quotav1.LostEpoch, more int64) {
	for _, l := range lost {
		units := "an unknown number of units"
		if l.MostUnits != nil {
			units = fmt.Sprintf("at most %d units", *l.MostUnits)
		}
		var limits []string
		for _, u := range l.Limits {
			switch {
			case u.Limit == "":
			case u.MostUnits == nil:
				limits = append(limits, display.Escape(u.Limit, "")+" unknown")
			default:
				limits = append(limits, fmt.Sprintf("%s %d", display.Escape(u.Limit, ""), *u.MostUnits))
			}
		}
		if len(limits) > 0 {
			units += " (" + strings.Join(limits, ", ") + ")"
		}
		reason := ""
		if l.Reason != "" {
			reason = ": " + display.Escape(l.Reason, "")
		}
		fmt.Fprintf(w, "may be missing: %s since %s, of agent %s, epoch %d, which is %s%s\n", units, render.Stamp(l.SinceMs), l.Agent, l.Epoch, l.State, reason)
	}
	if more > 0 {
		fmt.Fprintf(w, "and of %d more epochs\n", more)
	}
}

// lostItems is the same for JSON; units are null where they are unknown.
func lostItems(lost []*quotav1.LostEpoch) []map[string]any {
	items := make([]map[string]any, 0, len(lost))
	for _, l := range lost {
		limits := make([]map[string]any, 0, len(l.Limits))
		for _, u := range l.Limits {
			limits = append(limits, map[string]any{"limit": u.Limit, "most_units": u.MostUnits})
		}
		items = append(items, map[string]any{
			"agent": l.Agent, "epoch": l.Epoch, "state": l.State, "reason": l.Reason, "since": render.Stamp(l.SinceMs),
			"limits": limits, "most_units": l.MostUnits,
		})
	}
	return items
}
