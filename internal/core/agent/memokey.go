package agent

import (
	"math/bits"
	"math/rand/v2"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Key tells requests of the same names apart, and says where in a memo they are; the zero Key is of one that is too large to be
// remembered. Of each half all but nothing is known to
// those who do not know this process's seeds: values that differ agree in one sum with a chance of 2^-64 (it is the
// hash NH of two independent keys), and all 64 bits of the one half and 32 of the other are compared, besides those that tell
// the place. A billion different requests a second for a century, each beside all the others in its group, come to one
// chance in two billion that one of them is ever decided by another's buckets.
// What a value of more than 16 bytes has between its ends is hashed by multiplying and folding with keys of its own: no collision
// of it is known, and no bound like that one is proven.
type Key struct{ key, more uint64 }

// shortEnds is a value's first and last eight bytes, which overlap in a short one: with the length they say all of
// up to sixteen. It is for values of fewer than eight.
func shortEnds(v string) (first, last uint64) {
	p := unsafe.Pointer(unsafe.StringData(v))
	switch {
	case len(v) >= 4:
		return uint64(*(*uint32)(p)), uint64(*(*uint32)(unsafe.Add(p, len(v)-4)))
	case len(v) > 0:
		return uint64(v[0]) | uint64(v[len(v)/2])<<8, uint64(v[len(v)-1])
	}
	return 0, 0
}

// memoSeeds keep others from choosing values that collide.
var memoSeeds = func() (s struct {
	ends           [memoAttributes + 1][4]uint64 // the last for the lengths
	between, whole [4]uint64
}) {
	for i := range s.ends {
		for j := range s.ends[i] {
			s.ends[i][j] = rand.Uint64()
		}
	}
	for j := range s.whole {
		s.between[j], s.whole[j] = rand.Uint64()|1, rand.Uint64()
	}
	return s
}()

func folded(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// KeyOf returns the key of a request. It depends on the attributes alone, for as long as the process lives.
func KeyOf(attributes []limit.Attribute) (k Key) {
	if len(attributes) > memoAttributes {
		return k
	}
	aHigh, aLow, bHigh, bLow := sumsOf(attributes)
	var lengths, names, long, carry uint64
	for i := range attributes {
		value, name := uint64(len(attributes[i].Value)), uint64(len(attributes[i].Name)) // for there are requests of the same values
		lengths = lengths<<8 | value
		names = names<<8 | name
		long |= value | name
	}
	if long > 16 {
		if !memorable(attributes) {
			return k
		}
		a, b := betweenAll(attributes)
		aLow, bLow = aLow+a, bLow+b
	}
	last, whole := &memoSeeds.ends[memoAttributes], &memoSeeds.whole
	high, low := bits.Mul64(lengths+last[0], names+last[1])
	aLow, carry = bits.Add64(aLow, low, 0)
	aHigh, _ = bits.Add64(aHigh, high, carry)
	high, low = bits.Mul64(lengths+last[2], names+last[3])
	bLow, carry = bits.Add64(bLow, low, 0)
	bHigh, _ = bits.Add64(bHigh, high, carry)
	return Key{folded(aLow^whole[0], aHigh^whole[1]), folded(bLow^whole[2], bHigh^whole[3])}
}

// sumsOf is the hash NH, by two keys, of what values of up to sixteen bytes are, and of the ends of longer ones. It is apart, and what their
// lengths add is added elsewhere, so that all it has in hand is in registers: with one more in its loop each is written and read again.
func sumsOf(attributes []limit.Attribute) (aHigh, aLow, bHigh, bLow uint64) {
	var carry uint64
	for i := range attributes {
		v := attributes[i].Value
		p := unsafe.Pointer(unsafe.StringData(v))
		var first, last uint64
		if len(v) >= 8 {
			first, last = *(*uint64)(p), *(*uint64)(unsafe.Add(p, len(v)-8))
		} else {
			first, last = shortEnds(v)
		}
		s := &memoSeeds.ends[i&(memoAttributes-1)]
		high, low := bits.Mul64(first+s[0], last+s[1])
		aLow, carry = bits.Add64(aLow, low, 0)
		aHigh, _ = bits.Add64(aHigh, high, carry)
		high, low = bits.Mul64(first+s[2], last+s[3])
		bLow, carry = bits.Add64(bLow, low, 0)
		bHigh, _ = bits.Add64(bHigh, high, carry)
	}
	return aHigh, aLow, bHigh, bLow
}

// memorable reports whether no value or name is too long to be remembered.
func memorable(attributes []limit.Attribute) bool {
	for i := range attributes {
		if len(attributes[i].Value) > memoValue || len(attributes[i].Name) > memoName {
			return false
		}
	}
	return true
}

// betweenAll is betweenEnds of all values that have something there.
func betweenAll(attributes []limit.Attribute) (a, b uint64) {
	for i := range attributes {
		if v := attributes[i].Value; len(v) > 16 {
			x, y := betweenEnds(v, &memoSeeds.ends[i&(memoAttributes-1)])
			a, b = a+x, b+y
		}
	}
	return a, b
}

// betweenEnds is two hashes of what a long value has between its first and last eight bytes.
func betweenEnds(v string, seed *[4]uint64) (a, b uint64) {
	p := unsafe.Pointer(unsafe.StringData(v))
	a, b = seed[0], seed[2]
	for m := 8; m < len(v)-8; m += 8 {
		w := *(*uint64)(unsafe.Add(p, m))
		a = folded(a^w, memoSeeds.between[0]) + memoSeeds.between[1]
		b = folded(b^w, memoSeeds.between[2]) + memoSeeds.between[3]
	}
	return a, b
}

// none reports whether it is of a request that is not remembered.
func (k Key) none() bool { return k == Key{} }

func (k Key) sampled() bool { return k.key%memoSample == 0 }
