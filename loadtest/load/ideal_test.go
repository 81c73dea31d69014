package load

import "testing"

func evenly(n int, each uint32) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = each
	}
	return s
}

func TestIdealIsATokenBucket(t *testing.T) {
	// 100 a second, 50 at once; 300 a second come for ten seconds.
	s := series{arrived: evenly(1000, 3), quotas: []change{{0, Quota{100, 50}}}}
	if got := s.ideal(0, 1000); got < 1049 || got > 1051 {
		t.Errorf("over ten seconds: got %d, want 1,050", got)
	}
	if got := s.ideal(500, 1000); got < 499 || got > 501 {
		t.Errorf("once the burst is spent, over five seconds: got %d, want 500", got)
	}
	s.quotas = append(s.quotas, change{500, Quota{200, 50}})
	if got := s.ideal(500, 1000); got < 999 || got > 1001 {
		t.Errorf("with twice the rate: got %d, want 1,000", got)
	}
	s.arrived = evenly(1000, 0)
	s.arrived[999] = 1000
	if got := s.ideal(0, 1000); got != 50 {
		t.Errorf("after a long rest: got %d, want the burst, 50", got)
	}
}

func TestOverFindsWindowsAboveTheBound(t *testing.T) {
	s := series{arrived: evenly(1000, 1), admitted: evenly(1000, 1), quotas: []change{{0, Quota{100, 50}}}}
	for _, window := range []int{100, 200, 1000} {
		if tested, n := s.over(window); n != 0 || tested != 0 {
			t.Errorf("at the limit, windows of %d: got %d over, %d tested; nobody asked for more", window, n, tested)
		}
	}
	s.admitted[500] += 59 // 100 + 59 > 1.05 × 150
	s.arrived = evenly(1000, 2)
	s.arrived[500] = 60
	if tested, n := s.over(100); n != 100 || tested != 901 {
		t.Errorf("one unit above: got %d windows of %d tested, want the 100 that hold it, of 901", n, tested)
	}
	// Whom the burst covers for the whole window cannot break the bound, and is not counted as having kept it.
	s = series{arrived: evenly(1000, 2), admitted: evenly(1000, 2), quotas: []change{{0, Quota{100, 1000}}}}
	if tested, n := s.over(100); n != 0 || tested != 0 {
		t.Errorf("twice the rate under a burst of ten seconds of it: got %d over of %d tested, want none of none", n, tested)
	}
	// A plan that changed meanwhile allows the larger of both for a second.
	s.admitted = evenly(1000, 2)
	s.quotas = []change{{0, Quota{200, 10}}, {300, Quota{100, 10}}}
	first := 0
	for i := 100; i <= 1000; i++ {
		cut := series{arrived: s.admitted[:i], admitted: s.admitted[:i], quotas: s.quotas}
		if _, n := cut.over(100); n > 0 {
			first = i
			break
		}
	}
	if first < 300+settling || first > 300+settling+102 {
		t.Errorf("after a change to half, the first window above is at bin %d, want %d to %d", first, 300+settling, 300+settling+102)
	}
}
