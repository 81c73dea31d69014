package ledger

import (
	"fmt"
	"time"
)

// DefaultSlot is the length of a slot where none is given.
const DefaultSlot = 5 * time.Minute

// Months that an engine keeps room for around the present one. Rows of an older
// month than there is room for go to quarantine.
const (
	MonthsBack  = 1
	MonthsAhead = 2
)

// Month returns the start of the UTC month that holds the Unix second t.
func Month(t int64) time.Time {
	u := time.Unix(t, 0).UTC()
	return time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// Window is the time that the ledger has partitions for: whole months, without
// gaps, half-open, in Unix seconds. The zero Window has none.
type Window struct{ From, To int64 }

// check returns why a row of that slot cannot become an entry, or nil. The slot may be older than every
// partition, or more than one slot ahead of now.
func (w Window) check(slot int64, now time.Time, length time.Duration) error {
	seconds := max(int64(length/time.Second), 1)
	ahead := now.Unix() - now.Unix()%seconds + seconds
	switch {
	case slot < w.From:
		return fmt.Errorf("slot %s is before the oldest partition", stamp(slot))
	case slot > ahead:
		return fmt.Errorf("slot %s is more than one slot ahead", stamp(slot))
	case slot >= w.To:
		return fmt.Errorf("slot %s is after the newest partition", stamp(slot))
	}
	return nil
}

// month returns the partition of a fact dated at the Unix second t. A date outside the window goes to its
// nearest month. So a report is kept whatever clock its agent has, and its rows are judged one by one.
func (w Window) month(t int64) time.Time {
	return Month(min(max(t, w.From), w.To-1))
}

// Covers reports whether there is room for MonthsBack to MonthsAhead around now.
func (w Window) Covers(now time.Time) bool {
	from, to := MonthsAround(now)
	return w.From <= from.Unix() && w.To > to.Unix()
}

// MonthsAround returns the first and the last month that there shall be room for.
func MonthsAround(now time.Time) (first, last time.Time) {
	m := Month(now.Unix())
	return m.AddDate(0, -MonthsBack, 0), m.AddDate(0, MonthsAhead, 0)
}

func stamp(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// Extend returns the window with room around now, and the months to add for that:
// also those between, for a window has no gaps.
func (w Window) Extend(now time.Time) (Window, []time.Time) {
	first, last := MonthsAround(now)
	if w == (Window{}) {
		w = Window{first.Unix(), first.Unix()}
	}
	var add []time.Time
	for m := first; m.Unix() < w.From; m = m.AddDate(0, 1, 0) {
		add = append(add, m)
	}
	for m := Month(w.To); m.Unix() <= last.Unix(); m = m.AddDate(0, 1, 0) {
		add = append(add, m)
		w.To = m.AddDate(0, 1, 0).Unix()
	}
	w.From = min(w.From, first.Unix())
	return w, add
}
