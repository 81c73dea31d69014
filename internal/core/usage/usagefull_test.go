package usage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Where no more rows fit, a bucket's usage stays there and the usage says that it is behind; what has a row is still
// added to it. What stayed is booked later, under the slot that it is then, once.
func TestUsageBeyondItsRowsStaysInTheBucket(t *testing.T) {
	all := bucketsOf(nil)
	var entries [3]*fed
	for i := range entries {
		entries[i] = all.touch(fmt.Sprint("u", i), 1)
	}
	u := Usage{within: MaxRows - 2} // as if so many rows were packed
	for i, step := range []struct {
		what   string
		slot   int64
		take   bool
		admit  [3]int64
		booked [3]int64
		behind bool
	}{
		{"two find room", 300, false, [3]int64{1, 2, 4}, [3]int64{1, 2, 0}, true},
		{"those that have rows go on", 300, false, [3]int64{1, 1, 1}, [3]int64{1, 1, 0}, true},
		{"no new slot has room", 600, false, [3]int64{1, 0, 0}, [3]int64{0, 0, 0}, true},
		{"what has a row and nothing new needs no room", 300, false, [3]int64{0, 0, 0}, [3]int64{1, 0, 0}, true},
		{"there is room again", 600, true, [3]int64{}, [3]int64{0, 0, 5}, false},
		{"nothing is left", 600, false, [3]int64{}, [3]int64{}, false},
	} {
		if step.take {
			got := u.Take()
			want := []ledger.Row{row(t, entries[0], 300, 3), row(t, entries[1], 300, 3)}
			if !slices.Equal(got, want) {
				t.Errorf("taken: %+v, want %+v", got, want)
			}
		}
		u.Behind = false
		for k, e := range entries {
			e.Admit(step.admit[k])
			if got := u.Collect(e, step.slot, 1); got.Booked != step.booked[k] {
				t.Errorf("%d, %s: %d units of bucket %d are booked, want %d", i, step.what, got.Booked, k, step.booked[k])
			} else if waits := step.behind && (k == 2 || i == 2 && k == 0); got.Unbooked != waits {
				t.Errorf("%d, %s: bucket %d has usage in no row: %v, want %v", i, step.what, k, got.Unbooked, waits)
			}
		}
		if u.Behind != step.behind {
			t.Errorf("%d, %s: behind is %v, want %v", i, step.what, u.Behind, step.behind)
		}
		if u.Rows() > MaxRows {
			t.Errorf("%d, %s: %d rows, want %d at most", i, step.what, u.Rows(), MaxRows)
		}
	}
	if got, want := u.Take(), []ledger.Row{row(t, entries[2], 600, 5)}; !slices.Equal(got, want) {
		t.Errorf("at the end: %+v, want %+v", got, want)
	}
}

// row is a bucket's usage of a slot.
func row(t *testing.T, e *fed, slot, admitted int64) ledger.Row {
	t.Helper()
	r, ok := e.Row(slot)
	if !ok {
		t.Fatal("it feeds no row")
	}
	r.Admitted = admitted
	return r
}
