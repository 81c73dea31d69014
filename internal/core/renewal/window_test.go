package renewal

import "testing"

// The window is as large as the server answers in time, from a few to all.
func TestWindowFollowsTheServer(t *testing.T) {
	for _, c := range []struct {
		name        string
		trip        int64 // µs of any call
		each        int64 // µs of a renewal, one after the other
		least, most float64
	}{
		{"quick", 1_000, 0, mostWindow, mostWindow},
		{"far", 200_000, 0, mostWindow, mostWindow},
		{"a thousand a second", 1_000, 1_000, 100, 200},
		{"ten a second", 1_000, 100_000, leastWindow, leastWindow},
	} {
		w := newWindow()
		for range 1_000 { // one call after the other, of all that may be sent
			n := w.room(0)
			w.answered(w.sent(0, n, n), c.trip+int64(n)*c.each)
		}
		if w.size < c.least || w.size > c.most {
			t.Errorf("%s: got a window of %.0f, want %.0f to %.0f", c.name, w.size, c.least, c.most)
		}
		if w.under != 0 {
			t.Errorf("%s: %d under way after all were answered", c.name, w.under)
		}
	}
	w := newWindow()
	for i := range 1_000 {
		trip := int64(1_000)
		if i >= 100 {
			trip = 300_000 // by another way, without a call that failed
		}
		n := w.room(0)
		w.answered(w.sent(0, n, n), trip)
	}
	if w.size != mostWindow {
		t.Errorf("after a server that is near one that is far: got a window of %.0f, want %d", w.size, mostWindow)
	}
	w = newWindow()
	for range 10 {
		n := w.room(0)
		w.failed(w.sent(0, n, n))
	}
	if w.size != 1 {
		t.Errorf("after ten calls that failed: got a window of %.0f, want 1", w.size)
	}
	n := w.room(0)
	if w.answered(w.sent(0, n, n), 1_000_000); w.size < 1 || w.size > 2 {
		t.Errorf("after one of a single renewal that took a second: got a window of %.0f, want no more than before", w.size)
	}
	for range 10 {
		n := w.room(0)
		w.answered(w.sent(0, n, n), 1_000)
	}
	if w.size < firstWindow {
		t.Errorf("after ten that were quick: got a window of %.0f, want %d at least", w.size, firstWindow)
	}
}

// Calls that are not answered in time are those of a server that hangs, or of one that is busy: that one has no more than twice as much of it.
func TestWindowKeepsABusyServersWorkSmall(t *testing.T) {
	w := newWindow()
	w.answered(w.sent(0, 1, firstWindow), 1_000)
	sent := 0
	for now := int64(0); now < 2_000_000; now += 10_000 {
		if n := w.room(now); n > 0 {
			w.sent(now, n, n)
			sent += n
		}
	}
	if sent != 2*firstWindow {
		t.Errorf("%d renewals under way, want %d", sent, 2*firstWindow)
	}
	if w.answered(w.trips[1], 10_000); w.under != 0 || w.room(2_000_000) == 0 {
		t.Errorf("after one was answered before those sent earlier: %d under way, want none that count", w.under)
	}
}
