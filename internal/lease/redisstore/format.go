package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A bucket is a hash: field b is its state, l the log of a sliding window log, r:<holder> a holder's record. A
// value of a later build is left as it is; values of the last build are read (msgpack.go). A change of the
// format raises its number, and the build still reads the one before. A log has the format of the state that it
// was written with.
//
// Numbers are varints. Times are distances to a time that each value begins with, 0 for none.

const (
	stateField   = "b"
	logField     = "l"
	recordPrefix = "r:"

	// format is what this build writes. It has to stay below packed, which the records of the builds before begin with.
	format = 102
	// shrunk is the format of a state that has Forgiven too. Others are written without, as the builds before
	// this one can read them: while servers are being replaced they pass over few buckets.
	shrunk = 103
	// changed is the format of a state that has Changed as well.
	changed = 104
	// unitTold is the format of a record whose grant has UnitIn too.
	unitTold = 103
	// ringSpan is how many slots ahead a lease may end: MaxHold, the longest term, and the rounding up.
	ringSpan = 1 << 14
)

// head begins a state. Builds up to format 101 read msgpack: to them it is a list that begins with a format of
// later, and so nothing of theirs. The length of the rest follows, and eight bytes that no other write has.
var head = []byte{0x92, format, 0xdb}

const headLen = 3 + 4 + 8

// maxAhead is the most by which a step sets a time ahead of the bucket's clock, in microseconds. Values beyond
// are refused though they are well formed. With them a bucket would be in doubt, or a holder's numbers stale,
// until Redis drops the bucket, and renewals put that off.
const maxAhead = ringSpan * lease.SlotLen

func stateAhead(s *lease.State) bool {
	return max(s.Suspect, s.LargestUntil, s.Changed)-s.Last > maxAhead
}

// recordAhead also finds a number that no renewal may have. Where state and record are read, it is checked that
// the record began no later than the last step.
func recordAhead(r *lease.Record) bool {
	return r.Grant.Number > maxTime || r.Start < 0 || r.Start > maxTime || r.Expires-r.Start > maxAhead || r.Slot-r.Start/lease.SlotLen > ringSpan
}

// errCorrupt means that no build wrote the value. The bucket begins anew, as if it was lost.
var errCorrupt = errors.New("redis: a bucket's value cannot be read")

// encodeState appends field b of a bucket that Redis drops at the time until. The tag makes it differ from
// every one before.
func encodeState(to []byte, s *lease.State, until int64, tag uint64) []byte {
	begin := len(to)
	c := coder{to: append(to, head...), write: true}
	f := byte(format)
	switch {
	case s.Changed != 0:
		f = changed
	case s.Forgiven != 0:
		f = shrunk
	}
	c.to[begin+1] = f
	c.to = binary.BigEndian.AppendUint64(append(c.to, 0, 0, 0, 0), tag)
	c.numbers(&until)
	c.state(s)
	if f >= shrunk {
		c.numbers(&s.Forgiven)
	}
	if f >= changed {
		c.numbers(&s.Changed)
	}
	binary.BigEndian.PutUint32(c.to[begin+3:], uint32(len(c.to)-begin-7))
	return c.to
}

// written returns what tells a field b from all other writes' of it: its beginning, up to the tag. For builds
// before that, it is the whole field.
func written(b string) string {
	if len(b) > headLen && b[0] == head[0] && b[1] >= format && b[1] <= changed && b[2] == head[2] {
		return b[:headLen]
	}
	return b
}

// decodeState reads field b into s, and log, which is empty except for a sliding window log. It reuses the
// memory of s's ring. until is 0, for not known, if an earlier build wrote the field.
func decodeState(s *lease.State, b, log string) (until int64, err error) {
	m := unpacker{from: b}
	n, f := m.list(), m.number()
	switch {
	case m.bad:
		return 0, errCorrupt
	case f > changed:
		return 0, lease.ErrFormat
	case f < format:
		old, err := unpackState(b, log)
		if err == nil && stateAhead(old) {
			err = errCorrupt
		}
		if err == nil {
			*s = *old
		}
		return 0, err
	case n != 2 || len(b) < headLen || b[2] != head[2] || int64(fourBytes(b[3:])) != int64(len(b)-7):
		return 0, errCorrupt
	}
	c := coder{from: b[headLen:]}
	*s = lease.State{Ring: s.Ring[:0]}
	c.numbers(&until)
	c.state(s)
	if f >= shrunk {
		c.numbers(&s.Forgiven)
	}
	if f >= changed {
		c.numbers(&s.Changed)
	}
	if s.Algorithm == limit.SlidingWindowLog && log != "" {
		l := coder{from: log}
		l.log(s)
		c.bad = c.bad || l.bad || l.from != ""
	}
	if c.bad || c.from != "" || stateAhead(s) {
		return 0, errCorrupt
	}
	return until, nil
}

func fourBytes(b string) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// encodeLog appends field l to a buffer.
func encodeLog(to []byte, s *lease.State) []byte {
	c := coder{to: to, write: true}
	c.log(s)
	return c.to
}

// encodeRecord appends a holder's field to a buffer.
func encodeRecord(to []byte, r *lease.Record) []byte {
	f := byte(format)
	if r.Grant.UnitIn != 0 {
		f = unitTold
	}
	c := coder{to: append(to, f), write: true}
	c.record(r)
	if f == unitTold {
		c.numbers(&r.Grant.UnitIn)
	}
	return c.to
}

// decodeRecord reads one into r.
func decodeRecord(r *lease.Record, b string) error {
	switch {
	case b == "":
		return errCorrupt
	case b[0] == packed:
		old, err := unpackRecord(b)
		if err == nil && recordAhead(old) {
			err = errCorrupt
		}
		if err == nil {
			*r = *old
		}
		return err
	case b[0] > unitTold:
		return lease.ErrFormat
	case b[0] < format:
		return errCorrupt
	}
	c := coder{from: b[1:]}
	*r = lease.Record{}
	c.record(r)
	if b[0] == unitTold {
		c.numbers(&r.Grant.UnitIn)
	}
	if c.bad || c.from != "" || recordAhead(r) {
		return errCorrupt
	}
	return nil
}

// coder writes values or reads them, in one order for both.
type coder struct {
	write bool
	to    []byte
	from  string // what is left to be read
	bad   bool   // it cannot be
}

func (c *coder) state(s *lease.State) {
	c.algorithm(&s.Algorithm)
	c.numbers(&s.Last)
	c.fraction(&s.Carry)
	c.numbers(&s.Level, &s.Offset, &s.Burst, &s.Generation, &s.Withheld, &s.Spent, &s.Largest, &s.Before, &s.Left)
	c.times(s.Last, &s.Since, &s.Window, &s.WindowEnd, &s.Locked, &s.Suspect, &s.Unsure, &s.Moved, &s.Returned,
		&s.LargestUntil, &s.Edge, &s.LastEdge)
	c.flag(&s.Lapsed)
	c.ring(s)
}

// ring is the leases by the slots in which they end, and Out is their sum. All slots are after the last step.
// None is so far ahead that a step would take long to reach it.
func (c *coder) ring(s *lease.State) {
	n, slot := int64(len(s.Ring)), s.Last/lease.SlotLen
	last := slot + ringSpan
	c.numbers(&n)
	if c.write {
		to := c.to
		for i := range s.Ring {
			sums := &s.Ring[i]
			to = appendVarint(to, sums.At-slot)
			to = appendVarint(to, sums.Stock)
			to = appendVarint(to, sums.Pile)
			to = appendVarint(to, sums.Trickle)
			to = appendVarint(to, sums.Demand)
			to = appendVarint(to, *nextOf(s.Algorithm, &sums.Sums))
			slot = sums.At
		}
		c.to = to
		return
	}
	if c.bad || n < 0 || n > int64(len(c.from)) || s.Last < 0 || s.Last > maxTime {
		c.bad = true
		return
	}
	s.Ring = slices.Grow(s.Ring[:0], int(n)+1)[:n]
	from, v := c.from, [6]uint64{}
	for i := range s.Ring {
		for k := range v {
			n, length := uvarint(from)
			if length <= 0 {
				c.bad = true
				return
			}
			v[k], from = n, from[length:]
		}
		ahead := unzigzag(v[0])
		if ahead < 1 || ahead > last-slot {
			c.bad = true
			return
		}
		slot += ahead
		sums := lease.Sums{Stock: unzigzag(v[1]), Pile: unzigzag(v[2]), Trickle: unzigzag(v[3]), Demand: unzigzag(v[4])}
		*nextOf(s.Algorithm, &sums) = unzigzag(v[5])
		s.Ring[i] = lease.Slot{At: slot, Sums: sums}
		s.Out.Add(sums)
	}
	c.from = from
}

// nextOf returns what the place of Next in a value is: of an algorithm without windows it is Fallback. Builds from before
// that was there put it back as it is, and write none.
func nextOf(a limit.Algorithm, s *lease.Sums) *int64 {
	if a == limit.FixedWindow {
		return &s.Next
	}
	return &s.Fallback
}

// foretoldOf is the like for the place of Declared, which windows have no use for.
func foretoldOf(r *lease.Record) *int64 {
	if r.Algorithm == limit.FixedWindow {
		return &r.Foretold
	}
	return &r.Declared
}

// maxTime is the latest time there is, in microseconds: what a double holds exactly.
const maxTime = 1 << 53

func (c *coder) log(s *lease.State) {
	n, last := int64(len(s.Log)), int64(0)
	c.numbers(&n)
	if !c.write {
		if c.bad || n < 0 || n > int64(len(c.from)) {
			c.bad = true
			return
		}
		if s.Log = nil; n > 0 { // as a value of an older build has none
			s.Log = make([]lease.Entry, n)
		}
	}
	for i := range s.Log {
		e := &s.Log[i]
		since := e.At - last
		c.numbers(&since, &e.Units)
		last += since
		e.At = last
	}
}

func (c *coder) record(r *lease.Record) {
	g := &r.Grant
	c.algorithm(&r.Algorithm)
	c.numbers(&r.Start)
	c.numbers(&r.Lease.Stock, &r.Lease.Pile, &r.Lease.Trickle, &r.Lease.Demand, nextOf(r.Algorithm, &r.Lease))
	c.numbers(&r.Lent, &r.Largest, foretoldOf(r), &r.Ahead, &r.Began, &r.Admitted, &r.Denied)
	c.numbers(&g.Number, &g.Tokens, &g.Trickle, &g.Pile, &g.TTL, &g.DenyFor, &g.Fallback, &g.Next, &g.Generation,
		&g.Remaining, &g.Reset, &g.Out, &g.Drawn)
	c.times(r.Start/lease.SlotLen, &r.Slot, &g.ExpirySlot)
	var onShare int64 // of earlier builds
	c.times(r.Start, &r.Expires, &r.Window, &r.NextWindow, &onShare, &g.ValidFrom, &g.ValidUntil, &g.Unsure)
	c.flag(&r.Fresh)
}

func (c *coder) numbers(numbers ...*int64) {
	if c.write {
		to := c.to
		for _, v := range numbers {
			to = appendVarint(to, *v)
		}
		c.to = to
		return
	}
	for _, v := range numbers {
		*v = unzigzag(c.uvarint())
	}
}

func (c *coder) times(base int64, times ...*int64) {
	for _, v := range times {
		switch {
		case !c.write:
			if u := c.uvarint(); u > 0 {
				*v = base + unzigzag(u-1)
			}
		case *v == 0:
			c.to = append(c.to, 0)
		default:
			c.to = appendUvarint(c.to, zigzag(*v-base)+1)
		}
	}
}

func (c *coder) fraction(v *float64) {
	switch {
	case c.write:
		c.to = binary.BigEndian.AppendUint64(c.to, math.Float64bits(*v))
	case len(c.from) < 8:
		c.bad = true
	default:
		*v = math.Float64frombits(uint64(fourBytes(c.from))<<32 | uint64(fourBytes(c.from[4:])))
		c.from = c.from[8:]
		c.bad = c.bad || !(*v >= 0 && *v < 1)
	}
}

func (c *coder) flag(v *bool) {
	n := int64(0)
	if *v {
		n = 1
	}
	c.numbers(&n)
	*v = n == 1
}

func (c *coder) algorithm(v *limit.Algorithm) {
	n := int64(*v)
	c.numbers(&n)
	*v = limit.Algorithm(n)
	c.bad = c.bad || *v < limit.TokenBucket || *v > limit.Concurrency
}

func (c *coder) uvarint() uint64 {
	v, n := uvarint(c.from)
	if n <= 0 {
		c.bad, c.from = true, ""
		return 0
	}
	c.from = c.from[n:]
	return v
}

// Most numbers take four to six bytes. A loop would mispredict which byte is the last, so eight bytes are taken
// at once.

// sevens are the bits of eight bytes that are of the number.
const sevens = 0x7f7f7f7f7f7f7f7f

// uvarint returns the number that s begins with and how many bytes it takes, 0 for none.
func uvarint(s string) (v uint64, n int) {
	if len(s) >= 8 {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		if ends := ^x &^ sevens; ends != 0 {
			x &= (ends ^ (ends - 1)) & sevens // up to the first that ends a number
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
			return x, bits.TrailingZeros64(ends)/8 + 1
		}
	}
	for i := 0; i < len(s) && i < binary.MaxVarintLen64; i++ {
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

func appendVarint(to []byte, v int64) []byte { return appendUvarint(to, zigzag(v)) }

// appendUvarint is what uvarint reads.
func appendUvarint(to []byte, v uint64) []byte {
	if v < 0x80 {
		return append(to, byte(v))
	}
	if v >= 1<<56 {
		return binary.AppendUvarint(to, v)
	}
	n := (bits.Len64(v) + 6) / 7
	x := v&0x000000000fffffff | v<<4&0x0fffffff00000000
	x = x&0x00003fff00003fff | x<<2&0x3fff00003fff0000
	x = x&0x007f007f007f007f | x<<1&0x7f007f007f007f00
	x |= (1<<(8*(n-1)) - 1) &^ sevens // another byte follows
	return binary.LittleEndian.AppendUint64(to, x)[:len(to)+n]
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
