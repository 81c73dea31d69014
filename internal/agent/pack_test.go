package agent

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// numbers calls f for every number and truth of a book, whatever struct it is in.
func numbers(v reflect.Value, f func(name string, v reflect.Value)) {
	for i := range v.NumField() {
		name, at := v.Type().Field(i).Name, v.Field(i)
		at = reflect.NewAt(at.Type(), unsafe.Pointer(at.UnsafeAddr())).Elem()
		switch at.Kind() {
		case reflect.Struct:
			numbers(at, f)
		case reflect.Pointer:
		default:
			f(name, at)
		}
	}
}

// extremes are numbers at the ends of what a field holds.
var extremes = []int64{0, 1, -1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, Never, endless, 1 << 62}

// What is packed is what is unpacked, of whatever numbers, at the ends of their ranges too; no field is left out. What has
// no room is said to have none.
func TestPackedIsUnpacked(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 1))
	packed, narrow := 0, 0
	for run := range 200_000 {
		of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 1}, Burst: 1})
		b := of.open(new(hand))
		each := 1 << r.IntN(8) // one number in so many
		numbers(reflect.ValueOf(b).Elem(), func(_ string, v reflect.Value) {
			if r.IntN(each) > 0 {
				return
			}
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
		})
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
		if open := of.seldom() != nil && of.seldom().book != nil; peek(of).number != want.number {
			t.Fatalf("seed %d run %d: after it was closed it is another book (open: %v)", seed, run, open)
		}
	}
	if packed < 20_000 || packed > 190_000 || narrow < 10_000 {
		t.Errorf("%d books of 200,000 found room, %d in the bucket itself: this proves little", packed, narrow)
	}
}

func differ(t *testing.T, got, want book) {
	var all []any
	numbers(reflect.ValueOf(&want).Elem(), func(_ string, v reflect.Value) { all = append(all, v.Interface()) })
	numbers(reflect.ValueOf(&got).Elem(), func(name string, v reflect.Value) {
		if v.Interface() != all[0] {
			t.Errorf("%s: got %v, want %v", name, v.Interface(), all[0])
		}
		all = all[1:]
	})
}

// The bits of the common numbers end before that which says that there are rare ones.
func TestPackedBits(t *testing.T) {
	of := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket})
	b := of.open(new(hand))
	defer b.close()
	p := packing{writing: true, bits: -1}
	b.walk(&p)
	usual := p.bit
	p.bits = -1
	b.walkUsual(&p)
	p.bits = -1
	if b.walkRare(&p); usual > common || p.bit-usual > 64-common-1 {
		t.Errorf("%d common and %d rare numbers, want at most %d and %d", usual, p.bit-usual, common, 64-common-1)
	}
}

// A book is open while a renewal is under way, while requests wait and while many need it, and packed at all other times;
// nothing is left apart then.
func TestBooksAreClosed(t *testing.T) {
	b := NewBucket(&limit.Limit{Name: "l", Algorithm: limit.TokenBucket, Rate: limit.Rate{Units: 10}, Burst: 100})
	is := func(what string, want bool) {
		t.Helper()
		s := b.seldom()
		if open := s != nil && s.book != nil; open != want || !want && s != nil {
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
