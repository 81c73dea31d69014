package ledger

import (
	"slices"
	"testing"
)

// TestPages: what a block reads at once is bounded, a single report apart, and so is
// what it reads in all.
func TestPages(t *testing.T) {
	report := func(rows, size int) Waiting { return Waiting{Rows: rows, Size: size} }
	for _, c := range []struct {
		name   string
		queue  []Waiting
		halved int
		want   []int // reports of each page
	}{
		{"nothing", nil, 0, nil},
		{"little", []Waiting{report(1, 1), report(1, 1)}, 0, []int{2}},
		{"rows", []Waiting{report(MaxPageRows, 1), report(1, 1), report(MaxPageRows-1, 1), report(1, 1)}, 0, []int{1, 2, 1}},
		{"bytes", []Waiting{report(1, MaxPageBytes), report(1, 1)}, 0, []int{1, 1}},
		{"one above all bounds", []Waiting{report(2*MaxBlockRows, 2*MaxBlockBytes), report(1, 1)}, 0, []int{1}},
		{"a block's rows", []Waiting{report(MaxPageRows, 1), report(MaxBlockRows-MaxPageRows, 1), report(1, 1)}, 0, []int{1, 1}},
		{"a block's bytes", []Waiting{report(1, MaxBlockBytes), report(1, 1)}, 0, []int{1}},
		{"a block's reports", make([]Waiting, MaxBlockReports+1), 0, []int{MaxBlockReports}},
		{"halved until one is left", []Waiting{report(1, 1), report(1, 1)}, 13, []int{1}},
		{"halved once", []Waiting{report(MaxPageRows/2, 1), report(1, 1)}, 1, []int{1, 1}},
	} {
		for i := range c.queue {
			c.queue[i].ID = int64(i + 1)
		}
		var got []int
		next := int64(1)
		for _, page := range Pages(c.queue, c.halved) {
			got = append(got, len(page))
			for _, id := range page {
				if id != next {
					t.Errorf("%s: got report %d, want %d", c.name, id, next)
				}
				next++
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got pages of %v reports, want %v", c.name, got, c.want)
		}
	}
}
