package agent

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/unraced"
)

// number is a number or truth of a book, and where in the book it is.
type number struct {
	name string
	at   uintptr
	kind reflect.Type
}

// numbers are all of a book's, whatever struct they are in.
var numbers = numbersOf(reflect.TypeFor[book](), 0)

func numbersOf(in reflect.Type, from uintptr) (all []number) {
	for f := range in.Fields() {
		switch f.Type.Kind() {
		case reflect.Struct:
			all = append(all, numbersOf(f.Type, from+f.Offset)...)
		case reflect.Pointer:
		default:
			all = append(all, number{f.Name, from + f.Offset, f.Type})
		}
	}
	return all
}

func (n number) of(b *book) reflect.Value {
	return reflect.NewAt(n.kind, unsafe.Add(unsafe.Pointer(b), n.at)).Elem()
}

// extremes are numbers at the ends of what a field holds.
var extremes = []int64{0, 1, -1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, Never, endless, 1 << 62}

// What is packed is what is unpacked, of whatever numbers, at the ends of their ranges too; no field is left out. What has
// no room is said to have none.
func TestPackedIsUnpacked(t *testing.T) {
	unraced.Only(t)
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 1))
	packed, narrow := 0, 0
	for run := range 200_000 {
		of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 1})
		b := of.open(new(hand))
		each := 1 << r.IntN(8) // one number in so many
		for _, number := range numbers {
			if r.IntN(each) > 0 {
				continue
			}
			v := number.of(b)
			n := extremes[r.IntN(len(extremes))]
			if r.IntN(2) == 0 {
				n = r.Int64() >> r.IntN(64)
			}
			switch v.Kind() {
			case reflect.Bool:
				v.SetBool(n&1 != 0)
			case reflect.Uint8:
				v.SetUint(uint64(n) & 3)
			case reflect.Int32:
				v.SetInt(int64(int32(n)))
			default:
				v.SetInt(n)
			}
		}
		want := *b
		if b.pack() {
			packed++
			if s := of.seldom(); s == nil || s.more == nil {
				narrow++
			}
			got := book{Bucket: of, terms: b.terms, cell: of.stock()}
			got.unpack()
			want.cell.apart = got.cell.apart
			if got != want {
				differ(t, got, want)
				t.Fatalf("seed %d run %d: another book", seed, run)
			}
		}
		b.close()
		if open := of.seldom() != nil && of.seldom().book.Load() != nil; peek(of).number != want.number {
			t.Fatalf("seed %d run %d: after it was closed it is another book (open: %v)", seed, run, open)
		}
	}
	if packed < 20_000 || packed > 190_000 || narrow < 10_000 {
		t.Errorf("%d books of 200,000 found room, %d in the bucket itself: this proves little", packed, narrow)
	}
}

func differ(t *testing.T, got, want book) {
	for _, n := range numbers {
		if g, w := n.of(&got).Interface(), n.of(&want).Interface(); g != w {
			t.Errorf("%s: got %v, want %v", n.name, g, w)
		}
	}
}

// The bits of the common numbers end before that which says that there are rare ones.
func TestPackedBits(t *testing.T) {
	of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket})
	b := of.open(new(hand))
	defer b.close()
	var p packing
	if usual, rare := b.walk(&p), b.walkRare(&p)-common-1; usual > common || rare > 64-common-1 {
		t.Errorf("%d common and %d rare numbers, want at most %d and %d", usual, rare, common, 64-common-1)
	}
}

// A book is open while a renewal is under way, while requests wait and while many need it, and packed at all other times;
// nothing is left apart then.
func TestBooksAreClosed(t *testing.T) {
	b := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10}, Burst: 100})
	is := func(what string, want bool) {
		t.Helper()
		s := b.seldom()
		if open := s != nil && s.book.Load() != nil; open != want || !want && s != nil {
			t.Errorf("%s: open %v, want %v; apart: %+v", what, open, want, s)
		}
	}
	is("at first", false)
	r := b.Renew(1_000_000, false)
	is("renewed", true)
	b.Apply(1_001_000, lease.Grant{Number: r.Number, Tokens: 5, TTL: 10_000_000, Trickle: 5_000_000, Pile: 3})
	is("answered", false)
	b.Ask(1_002_000, 8, false, true)
	w := &Waiter{Units: 8, Done: func(Verdict) {}}
	b.Join(w)
	is("while one waits", true)
	b.Abandon(w, true)
	is("once none waits", false)
	for range mostUses - 1 {
		b.Slow(1_003_000, 1, false)
		is("a few requests", false)
	}
	for range mostUses {
		b.Slow(1_003_000, 1, false)
	}
	is("many requests", true)
	b.Collect()
	is("collected", false)
}
