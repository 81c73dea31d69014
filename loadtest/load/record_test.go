package load

import (
	"testing"
	"time"
)

func TestRecordHasEachRequest(t *testing.T) {
	track := make([]uint32, 256)
	for i := range track {
		track[i] = uint32(i)
	}
	r := record{at: 1000, took: 100, n: 100, from: 200}
	r.admitted[0], r.admitted[1] = 1<<63|1, 1<<3
	if r.allowed() != 3 {
		t.Errorf("allowed: got %d, want 3", r.allowed())
	}
	i := 0
	r.each(track, func(tenant uint32, at int64, admitted bool) {
		if want := uint32((200 + i) % 256); tenant != want || at != 1000+int64(i) || admitted != (i == 0 || i == 63 || i == 67) {
			t.Errorf("request %d: got tenant %d at %d, admitted %v", i, tenant, at, admitted)
		}
		i++
	})
	if i != 100 {
		t.Errorf("got %d requests, want 100", i)
	}
}

func TestTimesAreWithinASixteenth(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 15, 16, 17, 100, 999, 1 << 20, time.Hour} {
		var s times
		s.add(d)
		if got := s.at(0.5); got > d || float64(got) < float64(d)*15/16 || s.most != d {
			t.Errorf("%d: got %d, at most %d", d, got, s.most)
		}
	}
	var s times
	for i := range 1000 {
		s.add(time.Duration(i))
	}
	if p50, p99 := s.at(0.5), s.at(0.99); p50 < 468 || p50 > 500 || p99 < 928 || p99 > 990 {
		t.Errorf("of 0 to 999: got p50 %d, p99 %d", p50, p99)
	}
}
