package bucket

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// beforeAnEdge is a bucket with 5 units of a strict window, and as many of the next one.
func beforeAnEdge() *Bucket {
	const second = 1_000_000
	b := Of(&limit.Limit{
		Name: "l", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 20, Per: 10 * time.Second}, Enforcement: limit.Strict,
	})
	b.Apply(second, lease.Grant{
		Number: b.Renew(second, false).Number, Tokens: 5, Next: 5, TTL: 2 * second, Reset: second,
		ValidFrom: 100 * second, ValidUntil: 110 * second,
	})
	return b
}

// A unit taken after its window's end, which another request goes over to the next one before it comes back, is not
// spendable in that one.
func TestAUnitPutBackLateIsNotOfTheNextWindow(t *testing.T) {
	b := beforeAnEdge()
	now, admitted := b.beginAt+1, 0
	if until := b.Until(); !b.Take(1) || b.InTime(1, until, func() int64 {
		if b.Ask(now, 1, false, false).Outcome == Admitted {
			admitted++
		}
		return now
	}) {
		t.Fatal("no unit, or one in time")
	}
	for b.Ask(now, 1, false, false).Outcome == Admitted {
		admitted++
	}
	if told := b.Renew(now, false).Admitted; admitted != 5 || told != 6 {
		t.Errorf("%d admitted and %d told, want the 5 of the window, and the unit of the one before", admitted, told)
	}
}

// Another request goes over to the next window between a unit's taking and the look at the clock. The unit is of the
// window before, and is not spent in the next.
func TestAUnitTakenAsTheWindowTurnedIsLate(t *testing.T) {
	b := beforeAnEdge()
	until := b.Until()
	taken, now := b.Take(1), b.beginAt+1
	admitted := 0
	for b.Ask(now, 1, false, false).Outcome == Admitted {
		admitted++
	}
	if !taken || admitted != 5 || b.InTime(1, until, func() int64 { return now }) {
		t.Errorf("%d of the next window admitted, want its 5 and not one more", admitted)
	}
}

// The store says in whole milliseconds when the window is over, rounded up. No unit is taken in the part of a millisecond
// that is not of the window any more, however fast the answer was.
func TestNoUnitIsTakenInTheRestOfAMillisecond(t *testing.T) {
	const second, edge = 1_000_000, 1_050_120 // by the bucket's clock
	b := Of(&limit.Limit{
		Name: "l", Algorithm: limit.FixedWindow, Rate: limit.Rate{Units: 20, Per: time.Second}, Enforcement: limit.Strict,
	})
	var said quotav1.Grant
	number := b.Renew(second, false).Number
	wire.WriteGrant(&said, lease.Answer{Grant: lease.Grant{
		Number: number, Tokens: 5, TTL: edge - second - 20, Reset: edge - second - 20, ValidFrom: 100 * second, ValidUntil: 101 * second,
	}}, 1) // 20 microseconds after it was asked
	b.Apply(second+40, wire.GrantFromProto(&said).Grant)
	if until := b.Until(); !b.Take(1) || b.InTime(1, until, func() int64 { return edge }) {
		t.Error("no unit, or one of a window that is over")
	}
}

// An answer that comes after a strict lease ended brings all that it grants.
func TestAnAnswerAfterAStrictLeaseEnded(t *testing.T) {
	const second = 1_000_000
	b := Of(&limit.Limit{Name: "l", Rate: limit.Rate{Units: 100, Per: time.Second}, Burst: 100, Enforcement: limit.Strict})
	again(b, second, 1, lease.Grant{Tokens: 20, TTL: second})
	asked := b.Renew(2*second-50_000, false) // it gives 20 back
	if b.Tick(3*second, false); asked.Held != 20 || b.live {
		t.Fatalf("%d held, and live %t, want 20 of a lease that is over", asked.Held, b.live)
	}
	b.Apply(3*second, lease.Grant{Number: asked.Number, Tokens: 30, TTL: 10 * second})
	if got := b.Drain(); got != 30 || b.debt != 0 {
		t.Errorf("it has %d of a grant of 30, and owes %d", got, b.debt)
	}
}
