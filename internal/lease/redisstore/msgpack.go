package redisstore

import (
	"math"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// Up to format 101 the step ran in Redis, in Lua, and its values were lists of numbers in msgpack. Their states and records
// named the format, and before 101 did not, a state's first number being the algorithm.

const (
	lastPacked = 101
	// packed is what their records begin with: the mark of a list of sixteen numbers or more.
	packed = 0xdc
)

// unpackState reads their field b, and field l.
func unpackState(b, log string) (*lease.State, error) {
	v, ok := unpack(b)
	if !ok {
		return nil, errCorrupt
	}
	if v[0] < lastPacked {
		if len(v) < 27 {
			return nil, errCorrupt
		}
		rest := append([]float64{0, 0}, v[25:]...)
		v = append(append([]float64{lastPacked}, v[:25]...), rest...)
	}
	if len(v) < 30 || len(v)%6 != 0 {
		return nil, errCorrupt
	}
	s := &lease.State{Algorithm: limit.Algorithm(v[1]), Carry: v[3], Lapsed: v[25] == 1, Ring: make(lease.Ring, 0, len(v)/6-5)}
	for i, to := range []*int64{
		2: &s.Level, 4: &s.Last, 5: &s.Offset, 6: &s.Since, 7: &s.Burst, 8: &s.Window, 9: &s.WindowEnd, 10: &s.Generation,
		11: &s.Locked, 12: &s.Suspect, 13: &s.Withheld, 14: &s.Before, 15: &s.Left, 16: &s.Edge, 17: &s.LastEdge,
		23: &s.Unsure, 24: &s.Moved, 26: &s.Spent, 27: &s.Returned, 28: &s.Largest, 29: &s.LargestUntil,
	} {
		if to != nil {
			*to = int64(v[i])
		}
	}
	if s.Algorithm < limit.TokenBucket || s.Algorithm > limit.Concurrency || !(s.Carry >= 0 && s.Carry < 1) || s.Last < 0 {
		return nil, errCorrupt
	}
	for i := 30; i < len(v); i += 6 {
		slot, sums := int64(v[i]), unpackSums(s.Algorithm, v[i+1:])
		if ahead := slot - s.Last/lease.SlotLen; s.Ring.Has(slot) || ahead < 1 || ahead > ringSpan {
			return nil, errCorrupt
		}
		s.Ring.Add(slot, sums)
		s.Out.Add(sums)
	}
	if s.Algorithm != limit.SlidingWindowLog || log == "" {
		return s, nil
	}
	if v, ok = unpack(log); !ok || len(v)%2 != 0 {
		return nil, errCorrupt
	}
	for i := 0; i < len(v); i += 2 {
		s.Log = append(s.Log, lease.Entry{At: int64(v[i]), Units: int64(v[i+1])})
	}
	return s, nil
}

// unpackRecord reads their record of a holder.
func unpackRecord(b string) (*lease.Record, error) {
	v, ok := unpack(b)
	if !ok || len(v) < 36 || limit.Algorithm(v[16]) < limit.TokenBucket || limit.Algorithm(v[16]) > limit.Concurrency {
		return nil, errCorrupt
	}
	if len(v) > 36 && v[36] > lastPacked {
		return nil, lease.ErrFormat
	}
	r := &lease.Record{Algorithm: limit.Algorithm(v[16]), Lease: unpackSums(limit.Algorithm(v[16]), v), Fresh: v[10] == 1}
	g := &r.Grant
	for i, to := range []*int64{
		5: &r.Slot, 6: &r.Start, 7: &r.Expires, 8: &r.Window, 9: &r.NextWindow, 11: &r.Largest, 12: &r.Began, 13: &r.Admitted,
		14: &r.Denied, 15: &r.Lent, 17: &r.Declared,
		18: &g.Number, 19: &g.Tokens, 20: &g.Trickle, 21: &g.Pile, 22: &g.TTL, 23: &g.DenyFor, 24: &g.Fallback, 25: &g.ValidFrom,
		26: &g.ValidUntil, 27: &g.Next, 28: &g.Generation, 29: &g.ExpirySlot, 30: &g.Remaining, 31: &g.Reset, 32: &g.Out, 33: &g.Drawn,
		34: &g.Unsure, 35: &r.Ahead,
	} {
		if to != nil {
			*to = int64(v[i])
		}
	}
	if r.Algorithm == limit.FixedWindow {
		r.Declared = 0 // they had no use for it
	}
	return r, nil
}

// unpackSums reads sums. Only those of windows have a Next.
func unpackSums(a limit.Algorithm, v []float64) lease.Sums {
	s := lease.Sums{Stock: int64(v[0]), Pile: int64(v[1]), Trickle: int64(v[2]), Demand: int64(v[3])}
	if a == limit.FixedWindow {
		s.Next = int64(v[4])
	}
	return s
}

// unpack reads a list of numbers.
func unpack(b string) ([]float64, bool) {
	u := unpacker{from: b}
	n := u.list()
	if u.bad || n > len(u.from) {
		return nil, false
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = u.number()
	}
	return v, !u.bad && u.from == ""
}

// unpacker reads msgpack.
type unpacker struct {
	from string
	bad  bool
}

// take removes n bytes, and returns them as one number.
func (u *unpacker) take(n int) (v uint64) {
	if len(u.from) < n {
		u.bad, u.from = true, ""
		return 0
	}
	for i := range n {
		v = v<<8 | uint64(u.from[i])
	}
	u.from = u.from[n:]
	return v
}

// list reads a list's length.
func (u *unpacker) list() int {
	switch b := u.take(1); {
	case b>>4 == 0x9:
		return int(b & 0xf)
	case b == packed:
		return int(u.take(2))
	case b == packed+1:
		return int(u.take(4))
	}
	u.bad = true
	return 0
}

// number reads a number, whole or not, that a double of Lua may have been.
func (u *unpacker) number() float64 {
	v := math.NaN()
	switch b := u.take(1); {
	case u.bad:
	case b < 0x80:
		return float64(b)
	case b >= 0xe0:
		return float64(b) - 0x100
	case b == 0xca:
		v = float64(math.Float32frombits(uint32(u.take(4))))
	case b == 0xcb:
		v = math.Float64frombits(u.take(8))
	case b >= 0xcc && b <= 0xcf:
		v = float64(u.take(1 << (b - 0xcc)))
	case b >= 0xd0 && b <= 0xd3:
		bits := 64 - 8<<(b-0xd0)
		v = float64(int64(u.take(1<<(b-0xd0))<<bits) >> bits)
	}
	if !(math.Abs(v) <= 2*maxTime) { // or no number at all
		u.bad = true
		return 0
	}
	return v
}
