package bucket

import (
	"fmt"
	"testing"
)

// slotLoad is requests of one agent that come as others end, so that so many always run or wait.
type slotLoad struct {
	units, at int64 // how many slots each needs, and how many requests there are at a time
}

// slotRuns runs loads, one for each agent, on so many slots for a minute, after agents that had single slots each, and
// returns how many requests of each agent ran, and the part of the slots' time that was used.
func slotRuns(t *testing.T, slots int64, loads []slotLoad) (ran []int64, used float64) {
	const work, length = 100_000, 60_000_000
	w := newWorld(*slotsLimit(slots, 1000), len(loads))
	ran = make([]int64, len(loads))
	running := int64(0)
	over := false
	var spent int64
	run := func(i int, units int64, then func()) {
		n := w.nodes[i]
		n.request(units, true, func(ok bool) {
			if !ok {
				t.Error("denied with room in the queue")
				return
			}
			if running += units; running > slots {
				t.Errorf("%d slots are in use, of %d", running, slots)
			}
			w.after(work*3/4+w.rng.Int64N(work/2), func() {
				running -= units
				n.deliver(n.bucket.Finish(units))
				then()
				n.look()
			})
		})
	}
	var again func(i int)
	again = func(i int) {
		run(i, loads[i].units, func() {
			ran[i]++
			spent += loads[i].units * work
			if !over {
				again(i)
			}
		})
	}
	for i := range loads { // all slots are taken singly, and come back one by one
		for range slots / int64(len(loads)) {
			run(i, 1, func() {})
		}
	}
	w.runTo(w.now + work/2)
	from := w.now
	for i, load := range loads {
		for range load.at {
			again(i)
		}
	}
	w.runTo(from + length)
	used = float64(spent) / float64(length*slots)
	over = true
	w.runTo(w.now + 10_000_000)
	if running != 0 {
		t.Errorf("%d slots are in use at the end, want none", running)
	}
	for i, n := range w.nodes {
		if s := n.bucket.State(w.now); s.InUse != 0 {
			t.Errorf("agent %d has %d slots in use at the end, want none", i, s.InUse)
		}
	}
	calls := 0
	for _, n := range w.nodes {
		calls += n.calls
	}
	t.Logf("ran %v, %.0f %% of the slots' time was used, %d calls", ran, used*100, calls)
	return ran, used
}

// Requests of several slots at several agents do not keep from each other what each has gathered of them: some run at any time, each
// agent's in turn, and one that is larger than its agent's share beside a crowd of small ones at least every few seconds.
func TestLargeRequestsShareSlots(t *testing.T) {
	for _, c := range []struct {
		slots int64
		loads []slotLoad
		least float64 // part of the slots' time that is used
	}{
		{10, []slotLoad{{8, 1}, {8, 1}}, 0.6},
		{10, []slotLoad{{8, 3}, {8, 3}}, 0.6},
		{10, []slotLoad{{8, 2}, {8, 2}, {8, 2}}, 0.6},
		{10, []slotLoad{{10, 1}, {10, 4}}, 0.6},
		{10, []slotLoad{{4, 3}, {4, 3}, {4, 3}}, 0.6},
		{10, []slotLoad{{6, 2}, {3, 4}}, 0.6},
		{10, []slotLoad{{4, 3}, {1, 12}}, 0.6},
		{100, []slotLoad{{60, 2}, {30, 4}, {1, 60}}, 0.6},
		{10, []slotLoad{{8, 2}, {1, 30}}, 0.6},
		{10, []slotLoad{{8, 2}, {4, 2}, {1, 30}}, 0.6},
		{10, []slotLoad{{8, 3}, {8, 3}, {1, 5}, {1, 5}, {1, 5}}, 0.6},
		{400, []slotLoad{{225, 2}, {225, 2}}, 0.4},
	} {
		t.Run(fmt.Sprint(c.slots, " slots ", c.loads), func(t *testing.T) {
			ran, used := slotRuns(t, c.slots, c.loads)
			sum := int64(0)
			for i, n := range ran {
				sum += n * c.loads[i].units
			}
			for i, n := range ran {
				if n*c.loads[i].units*int64(len(ran)) < sum/4 && n < 15 {
					t.Errorf("%d ran of agent %d's, want its part of %v, or one in four seconds", n, i, ran)
				}
			}
			if used < c.least {
				t.Errorf("%.0f %% of the slots' time was used, want %.0f %%", used*100, c.least*100)
			}
		})
	}
}
