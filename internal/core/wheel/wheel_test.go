package wheel

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// entry is what is due.
type entry struct{ when When }

func (e *entry) When() *When { return &e.when }

// What is due in a month is looked at before that, and not at once.
func TestWheelFarAhead(t *testing.T) {
	const minute, day = 60_000_000, 86_400_000_000
	var s Wheel[entry, *entry]
	e, now := new(entry), int64(20*day)
	s.Pop(now)
	s.Set(e, now+30*day)
	if got := s.Pop(now + 8*minute); got != nil {
		t.Error("what is due in a month is popped after eight minutes")
	}
	if at := s.Next(); at < now+8*minute || at > now+30*day {
		t.Errorf("what is due in 30 days is looked at in %d minutes", (at-now)/minute)
	} else if s.Pop(at) != e {
		t.Error("it is not popped when it is to be looked at")
	}
}

// Whatever is set, moved and taken out: what is due is popped, and nothing else; the next time is the first of all; and near a
// time are those to be renewed that are due by then.
func TestWheelOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Wheel[entry, *entry]
		entries := make([]*entry, 40)
		for i := range entries {
			entries[i] = new(entry)
		}
		want, renews := make(map[*entry]int64), make(map[*entry]bool)
		span := rapid.SampledFrom([]int64{50, 1_000_000, 90_000_000}).Draw(t, "span")
		now := rapid.Int64Range(0, 1e12).Draw(t, "began")
		if rapid.Bool().Draw(t, "turns") {
			now = 1<<dueBits - 1 - now%span // the bits that a bucket has of a time turn meanwhile
		}
		s.Pop(now)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			e := entries[rapid.IntRange(0, len(entries)-1).Draw(t, "entry")]
			due := max(now+rapid.Int64Range(-span/4, span).Draw(t, "due"), 0)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1, 2:
				renews[e] = rapid.Bool().Draw(t, "renews")
				if s.Set(e, due); renews[e] {
					s.Renews(e)
				}
				want[e] = due
			case 3:
				s.Set(e, Never)
				delete(want, e)
			case 4:
				now = max(now, due)
				due = now
				got := s.Pop(due)
				least := int64(Never)
				for _, at := range want {
					least = min(least, at)
				}
				if (got == nil) != (least > due) || got != nil && want[got] > due {
					t.Fatalf("popped one (%v) due at %d at %d, the first is at %d", got != nil, want[got], due, least)
				}
				delete(want, got)
			}
			least := int64(Never)
			near, count := max(due, now), 0
			for e, at := range want {
				if least = min(least, at); at <= near && renews[e] {
					count++
				}
			}
			if next := s.Next(); next != least && (next > now || least > now) {
				t.Fatalf("next at %d, want %d", s.Next(), least)
			}
			found := s.Near(near, len(entries), nil)
			for _, e := range found {
				if at, ok := want[e]; !ok || at > near || !renews[e] {
					t.Fatalf("near %d: one due at %d", near, at)
				}
			}
			if len(found) != count {
				t.Fatalf("near %d: %d, want %d", near, len(found), count)
			}
			if n := len(s.Near(near, 3, nil)); n != min(count, 3) {
				t.Fatalf("near %d, three at most: %d of %d", near, n, count)
			}
		}
	})
}

// However often buckets are set for another time, or taken out, about as many are listed as wait; and no bucket once none does.
func TestWheelForgetsWhatLeft(t *testing.T) {
	var s Wheel[entry, *entry]
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]entry, 3_000)
	listed := func() (n int) {
		for k := range s.slots {
			for _, e := range s.slots[k].list {
				n++
				if *e.When()&seen != 0 {
					t.Fatal("a bucket is in a walk that has ended")
				}
			}
		}
		return n
	}
	for round := range 20 {
		for i := range all {
			due := r.Int64N(40_000_000)
			if r.IntN(4) == 0 {
				due = Never
			}
			s.Set(&all[i], due)
		}
		if n := listed(); n > 2*s.n+spans*leftAlone {
			t.Fatalf("round %d: %d are listed where %d wait", round, n, s.n)
		}
	}
	for i := range all {
		s.Remove(&all[i])
	}
	if n := listed(); n != 0 || s.n != 0 {
		t.Errorf("%d are listed, and %d wait, when all are taken out", n, s.n)
	}
}

// BenchmarkWheel takes the first of 10,000 buckets and sets it for later, in a hundred wheels in turn, as a process does
// whose gateways have a million.
func BenchmarkWheel(b *testing.B) {
	const wheels, each = 100, 10_000
	all := make([]Wheel[entry, *entry], wheels)
	r := rand.New(rand.NewPCG(1, 2))
	for range each {
		for i := range all {
			all[i].Set(new(entry), r.Int64N(10_000_000))
		}
	}
	b.ReportAllocs()
	began := processor()
	i := 0
	for b.Loop() {
		s := &all[i%wheels]
		due := s.Next()
		s.Set(s.Pop(due), due+r.Int64N(20_000_000))
		i++
	}
	b.ReportMetric(float64(processor()-began)/float64(b.N), "cpu-ns/op")
}

// processor is the processor's time that this process has had: what else the machine does is no part of it.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A list that was long once, and is empty, keeps no memory for as many.
func TestWheelGivesMemoryBack(t *testing.T) {
	var s Wheel[entry, *entry]
	all := make([]entry, 10*mostKept)
	s.Set(new(entry), 20_000_000) // the wheel is never empty
	for i := range all {
		s.Set(&all[i], 1_000)
	}
	for s.Pop(1_000) != nil {
	}
	if c := cap(s.slots[0].list); c > mostKept {
		t.Errorf("an empty list keeps room for %d", c)
	}
}
