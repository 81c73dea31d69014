package load

import (
	"testing"
	"time"
)

// Records of known requests come to the counts that can be made by hand, whatever the blocks.
func TestReplay(t *testing.T) {
	l := &load{began: time.Now(), track: make([]uint32, 4), quotas: make([][]change, 3)}
	l.track = []uint32{0, 1, 2, 0}
	for i := range l.quotas {
		l.quotas[i] = []change{{0, Quota{100, 10}}}
	}
	// For two seconds, each millisecond a chunk of four: tenants 0, 1, 2, 0. All but tenant 1's are admitted.
	var records []record
	for ms := range int64(2000) {
		r := record{at: ms * 1000, took: 100, n: 4}
		r.admitted[0] = 0b1101
		records = append(records, r)
	}
	got := l.replay([][]record{records[:700], records[700:]}, 200, 100, 200)
	if got.decisions != 4000 || got.taken != 3000 || got.saturated != 1 || got.idealSaturated != 3 {
		t.Errorf("in the second second: got %d decisions, %d admitted, %d saturated, ideally %d; want 4000, 3000, 1, 3", got.decisions, got.taken, got.saturated, got.idealSaturated)
	}
	for i, want := range []int64{4000, 0, 2000} {
		if got.admitted[i] != want || got.denied[i] != int64(2000*(i%2)) {
			t.Errorf("tenant %d: got %d admitted, %d denied, want %d", i, got.admitted[i], got.denied[i], want)
		}
	}
	if got.ideal < 297 || got.ideal > 303 {
		t.Errorf("ideal of three tenants at 100 a second: got %d", got.ideal)
	}
	// All three ask for far more than the bound; tenant 1 has nothing of it.
	if want := int64(2 * (101 + 1)); got.over != want || got.tested != 3*(101+1) || got.windows != 3*(101+1) {
		t.Errorf("windows: got %d over of %d tested of %d, want %d of %d of %d", got.over, got.tested, got.windows, want, 3*102, 3*102)
	}
	if s := got.seconds[1]; s.admitted != 3000 || s.denied != 1000 {
		t.Errorf("second 1: got %+v", s)
	}
}
