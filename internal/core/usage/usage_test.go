package usage

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

func usageRow(slot int64, key int) ledger.Row {
	return ledger.Row{Slot: slot, Tenant: fmt.Sprint("tenant-", key/10), Limit: "requests", Meter: "requests", Version: 1, Attributes: fmt.Sprint("user=user-", key)}
}

// Usage that waits for slot after slot is what was added, once, whatever was packed meanwhile: with a clock that steps
// back, with rows that come back, and in small numbers and large.
func TestUsageIsPackedAndWhole(t *testing.T) {
	unraced.Only(t)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var u Usage
		want, units := make(map[ledger.Row]counts), int64(0)
		keys := 1 + rng.IntN(3*packFrom)
		for range 6 {
			slot := 300 * int64(1+rng.IntN(4))
			u.turn(slot)
			for range keys {
				key, c := usageRow(slot, rng.IntN(keys)), counts{admitted: rng.Int64N(5), denied: rng.Int64N(2)}
				was := want[key]
				want[key] = counts{was.admitted + c.admitted, 0, was.denied + c.denied}
				units += c.admitted
				u.add(key, c)
			}
			if rng.IntN(3) == 0 {
				u.Return(u.Take())
			}
		}
		if u.Units() != units || u.Rows() < len(want) {
			t.Errorf("seed %d: %d units in %d rows wait, want %d in %d", seed, u.Units(), u.Rows(), units, len(want))
		}
		rows := u.Take()
		if len(rows) != len(want) || u.Rows() != 0 || u.Units() != 0 || !slices.IsSortedFunc(rows, func(a, b ledger.Row) int { return a.CompareKey(&b) }) {
			t.Errorf("seed %d: %d rows, want %d, in order; %d are left", seed, len(rows), len(want), u.Rows())
		}
		for _, r := range rows {
			if got := (counts{r.Admitted, r.Overage, r.Denied}); got != want[r.Key()] {
				t.Fatalf("seed %d: %+v, want %+v", seed, r, want[r.Key()])
			}
		}
	}
}

// An outage of the ledger costs an agent little more with each slot: what waits is packed.
func TestUsageOfSlotsIsSmall(t *testing.T) {
	unraced.Only(t)
	const keys, slots = 5000, 60
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var u Usage
	before := heap()
	for slot := range int64(slots) {
		u.turn(300 * (slot + 1))
		for k := range keys {
			u.add(usageRow(300*(slot+1), k), counts{admitted: 7})
		}
	}
	if u.Rows() != keys*slots {
		t.Fatalf("%d rows, want %d", u.Rows(), keys*slots)
	}
	each := float64(heap()-before) / (keys * slots)
	runtime.KeepAlive(&u)
	if each > 60 {
		t.Errorf("%.0f bytes for each row that waits, want 60 at most", each)
	}
	t.Logf("%.1f bytes a row", each)
}

// A row whose names no report has room for is not packed, and not lost.
func TestARowThatIsTooLargeWaitsAsItIs(t *testing.T) {
	var u Usage
	u.turn(300)
	for k := range packFrom {
		u.add(usageRow(300, k), counts{admitted: 1})
	}
	large := ledger.Row{Slot: 300, Tenant: "a", Limit: "l", Meter: "m", Attributes: string(make([]byte, ledger.MaxPayload+1))}
	u.add(large, counts{admitted: 1})
	u.turn(600)
	if rows := u.Take(); len(rows) != packFrom+1 {
		t.Errorf("%d rows, want %d", len(rows), packFrom+1)
	}
}

// Usage of the same keys that waits, while reports cannot be frozen, is a few rows for each key, and none of it is lost.
func TestUsageThatComesAgainIsMerged(t *testing.T) {
	const keys, times = mergeFrom / 4, 40
	rng := rand.New(rand.NewPCG(4, 5))
	var u Usage
	want := make(map[ledger.Row]counts)
	for range times {
		for _, k := range rng.Perm(keys) {
			key, c := usageRow(300, k), counts{admitted: 1 + rng.Int64N(5), overage: 1, denied: rng.Int64N(2)}
			was := want[key]
			want[key] = counts{was.admitted + c.admitted, was.overage + c.overage, was.denied + c.denied}
			u.add(key, c)
			if u.Rows() > 2*mergeFrom {
				t.Fatalf("%d rows wait of %d keys", u.Rows(), keys)
			}
		}
	}
	rows := u.Take()
	if len(rows) != keys || !slices.IsSortedFunc(rows, func(a, b ledger.Row) int { return a.CompareKey(&b) }) {
		t.Errorf("%d rows, want %d, in order", len(rows), keys)
	}
	for _, r := range rows {
		if got := (counts{r.Admitted, r.Overage, r.Denied}); got != want[r.Key()] {
			t.Fatalf("%+v, want %+v", r, want[r.Key()])
		}
	}
}
