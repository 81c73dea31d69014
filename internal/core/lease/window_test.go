package lease_test

import (
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
)

// A holder that has not heard of a smaller part of the next window goes over to the larger one: an answer was lost, and
// the answer to the next message comes after the edge. Another does not have what is between the two.
func TestAPartStaysOutUntilASmallerOneIsHeardOf(t *testing.T) {
	var s lease.State
	edge := leasetest.Window(1000, 10_000_000, 1_760_000_000_000_000).WindowEnd
	begin := edge - 1_000_000
	number := map[string]int64{}
	renew := func(at int64, r lease.Renewal) int64 {
		t.Helper()
		number[r.Holder]++
		r.Key, r.Number, r.Began, r.Largest = "b", number[r.Holder], 1, 1
		r.Spec = leasetest.Window(1000, 10_000_000, begin+at)
		r.Spec.EpsilonPPM = 0
		g, err := s.Renew(begin+at, &r)
		if err != nil {
			t.Fatal(err)
		}
		return g.Next
	}
	renew(0, lease.Renewal{Holder: "a", Waiting: 500})
	renew(200_000, lease.Renewal{Holder: "a", Waiting: 500, Admitted: 500, Heard: 1})
	had := renew(400_000, lease.Renewal{Holder: "a", Waiting: 100, Admitted: 1000, Told: 500, Heard: 2})
	renew(500_000, lease.Renewal{Holder: "b", Waiting: 500})
	renew(600_000, lease.Renewal{Holder: "b", Waiting: 500, Denied: 500, Heard: 1})
	lost := renew(621_000, lease.Renewal{Holder: "a", Waiting: 1, Admitted: 1000, Told: 1000, Denied: 100, Heard: 3})
	if lost >= had {
		t.Fatalf("a has %d of the next window, and then %d: the second is to be smaller", had, lost)
	}
	renew(930_000, lease.Renewal{Holder: "a", Waiting: 1, Admitted: 1000, Told: 1000, Denied: 101, Heard: 3})
	if b := renew(940_000, lease.Renewal{Holder: "b", Waiting: 500, Denied: 5000, Heard: 2}); had+b > 1000 {
		t.Errorf("a goes over to the %d that it has heard of, b to %d, of 1000", had, b)
	}
}

// A holder goes over to its part of the next window before it hears of a smaller one, granted with units of the old
// window. Those came too late. It spends the larger part, and others do not have what is between the two.
func TestALargerPartThatWasSpentDoesNotPassForTheOldWindow(t *testing.T) {
	const second = 1_000_000
	var s lease.State
	edge := leasetest.Window(1000, second, 1_760_000_000_000_000).WindowEnd
	number, admitted, window := map[string]int64{}, map[string]int64{}, map[string]int64{}
	renew := func(at int64, holder string, waiting, spent int64) lease.Grant {
		t.Helper()
		number[holder]++
		told := admitted[holder]
		admitted[holder] += spent
		r := lease.Renewal{
			Key: "b", Holder: holder, Number: number[holder], Began: 1, Heard: number[holder] - 1, Largest: 1, Waiting: waiting,
			Admitted: admitted[holder], Told: told, Window: window[holder], Spec: leasetest.Window(1000, second, edge+at),
		}
		r.Spec.EpsilonPPM = 0
		g, err := s.Renew(edge+at, &r)
		if err != nil {
			t.Fatal(err)
		}
		window[holder] = r.Spec.WindowStart
		return g
	}
	renew(-900_000, "a", 400, 0)
	large := renew(-600_000, "a", 100, 400).Next
	renew(-500_000, "b", 400, 0)
	renew(-300_000, "b", 10, 400)
	small := renew(-100_000, "a", 1, 100)
	if small.Tokens == 0 || small.Next >= large {
		t.Fatalf("%d units of the old window, and %d after %d of the next: want some, and less", small.Tokens, small.Next, large)
	}
	window["a"] += second // by itself
	spent := large + renew(100_000, "a", 0, large).Tokens
	for at := int64(200_000); at < second; at += 50_000 {
		g := renew(at, "b", 1000, 0)
		admitted["b"] += g.Tokens
		spent += g.Tokens
	}
	if spent > 1000 {
		t.Errorf("%d units of a strict window of 1000", spent)
	}
}

// A store's clock is set back across an edge while a holder is in the window behind it. What it told meanwhile of its part
// of that window is not granted again once the store is there.
func TestAStoreSetBackAcrossAnEdgeKeepsWhatItWasTold(t *testing.T) {
	var s lease.State
	edge := leasetest.Window(100, 10_000_000, 1_760_000_000_000_000).WindowEnd
	number, admitted := int64(0), int64(0)
	renew := func(at, window, waiting, spent, held int64) lease.Grant {
		t.Helper()
		told := admitted
		number, admitted = number+1, admitted+spent
		r := lease.Renewal{
			Key: "b", Holder: "a", Number: number, Began: 1, Heard: number - 1, Largest: min(waiting, 1), Waiting: waiting, Held: held,
			Admitted: admitted, Told: told, Window: window, Spec: leasetest.Window(100, 10_000_000, edge+at),
		}
		g, err := s.Renew(edge+at, &r)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	old := edge - 10_000_000
	renew(-2_000_000, 0, 50, 0, 0)
	g := renew(-1_500_000, old, 40, 50, 0)
	g = renew(-1_000_000, old, 10, 40, g.Tokens-40)
	part := g.Next
	if part < 80 {
		t.Fatalf("its part of the next window is %d, want nearly all of it", part)
	}
	for at := int64(-900_000); at < 0; at += 300_000 { // it is in that window, by its own clock
		renew(at, edge, 1, part/3, part-part/3*(at/300_000+4))
	}
	used := part / 3 * 3
	g = renew(100_000, edge, 100, 0, part-used)
	if all := used + g.Tokens; all > 100 {
		t.Errorf("%d units of its part, and %d granted: %d of 100", used, g.Tokens, all)
	}
}

// Servers hang across an edge. One holder finds its way back before the next edge, another after it. Meanwhile that one
// goes on with its part of each window, and nobody else has it.
func TestAPartStaysOutWhileAHolderFindsItsWayBack(t *testing.T) {
	const second = 1_000_000
	var s lease.State
	edge := leasetest.Window(500, second, 1_760_000_000_000_000).WindowEnd
	number, admitted := map[string]int64{}, map[string]int64{}
	window := map[string]int64{}
	renew := func(at int64, holder string, spent int64) lease.Grant {
		t.Helper()
		number[holder]++
		told := admitted[holder]
		admitted[holder] += spent
		r := lease.Renewal{
			Key: "b", Holder: holder, Number: number[holder], Began: 1, Heard: number[holder] - 1, Largest: 1, Waiting: 500,
			Admitted: admitted[holder], Told: told, Window: window[holder], Spec: leasetest.Window(500, second, edge+at),
		}
		g, err := s.Renew(edge+at, &r)
		if err != nil {
			t.Fatal(err)
		}
		window[holder] = r.Spec.WindowStart
		return g
	}
	renew(-800_000, "back", 0)
	renew(-800_000, "late", 0)
	renew(-200_000, "back", 0)
	late := renew(-100_000, "late", 0).Next
	if late < 50 {
		t.Fatalf("its part of the next window is %d, want a good part of 500", late)
	}
	renew(second+600_000, "back", 0)
	granted := late
	for at := int64(2 * second); at < 3*second; at += 100_000 {
		n := renew(at, "back", 0).Tokens
		granted += n
		admitted["back"] += n
	}
	if granted > 525 {
		t.Errorf("%d units of a window of 500, with its part", granted)
	}
}
