package redisstore

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/f4ee788f/quota/internal/lease"
	"github.com/f4ee788f/quota/internal/limit"
)

// A bucket is a hash: field b is its state, l the log of a sliding window log, r:<holder> a holder's record. What
// a later build wrote is left as it is; what the last one wrote is read (msgpack.go). Whoever changes the format raises
// its number, and reads the one before. A log is of the format of the state that it was written with.
//
// Numbers are varints; times are told by their distance to one that each value begins with, 0 for none.

const (
	stateField   = "b"
	logField     = "l"
	recordPrefix = "r:"

	// format is what this build writes. It has to stay below packed, which the records of the builds before begin with.
	format = 102
	// ringSpan is how many slots ahead a lease may end: MaxHold and the longest term, and what is rounded up.
	ringSpan = 1 << 14
)

// head begins a state. Builds up to format 101 read msgpack: to them it is a list that begins with a format of
// later, and so nothing of theirs. The length of the rest follows, and eight bytes that no other write has.
var head = []byte{0x92, format, 0xdb}

const headLen = 3 + 4 + 8

// errCorrupt means that a value is none that any build wrote: the bucket cannot be served until it expires.
var errCorrupt = errors.New("redis: a bucket's value cannot be read")

// encodeState returns field b, of a bucket that Redis drops at the time until; the tag makes it another than every
// one before.
func encodeState(s *lease.State, until int64, tag uint64) []byte {
	c := coder{to: make([]byte, headLen, 192), write: true}
	c.numbers(&until)
	c.state(s)
	copy(c.to, head)
	binary.BigEndian.PutUint32(c.to[3:], uint32(len(c.to)-7))
	binary.BigEndian.PutUint64(c.to[7:], tag)
	return c.to
}

// decodeState reads field b, and log, which is empty but for a sliding window log's. Of the builds before it is not
// known until when, and 0.
func decodeState(b, log string) (s *lease.State, until int64, err error) {
	m := unpacker{from: b}
	n, f := m.list(), m.number()
	switch {
	case m.bad:
		return nil, 0, errCorrupt
	case f > format:
		return nil, 0, lease.ErrFormat
	case f < format:
		s, err = unpackState(b, log)
		return s, 0, err
	case n != 2 || len(b) < headLen || b[2] != head[2] || int64(fourBytes(b[3:])) != int64(len(b)-7):
		return nil, 0, errCorrupt
	}
	c := coder{from: b[headLen:]}
	s = new(lease.State)
	c.numbers(&until)
	c.state(s)
	if s.Algorithm == limit.SlidingWindowLog && log != "" {
		l := coder{from: log}
		l.log(s)
		c.bad = c.bad || l.bad || l.from != ""
	}
	if c.bad || c.from != "" {
		return nil, 0, errCorrupt
	}
	return s, until, nil
}

func fourBytes(b string) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// encodeLog returns field l.
func encodeLog(s *lease.State) []byte {
	c := coder{write: true}
	c.log(s)
	return c.to
}

// encodeRecord returns a holder's field.
func encodeRecord(r *lease.Record) []byte {
	c := coder{to: append(make([]byte, 0, 128), format), write: true}
	c.record(r)
	return c.to
}

// decodeRecord reads one.
func decodeRecord(b string) (*lease.Record, error) {
	switch {
	case b == "":
		return nil, errCorrupt
	case b[0] == packed:
		return unpackRecord(b)
	case b[0] > format:
		return nil, lease.ErrFormat
	case b[0] != format:
		return nil, errCorrupt
	}
	c, r := coder{from: b[1:]}, new(lease.Record)
	c.record(r)
	if c.bad || c.from != "" {
		return nil, errCorrupt
	}
	return r, nil
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

// ring is the leases by the slots in which they end: all after the last step, and none so far ahead that a step would
// look for it for long. Out is their sum.
func (c *coder) ring(s *lease.State) {
	n, slot := int64(len(s.Ring)), s.Last/lease.SlotLen
	last := slot + ringSpan
	c.numbers(&n)
	if c.write {
		for _, sums := range s.Ring {
			ahead := sums.At - slot
			c.numbers(&ahead, &sums.Stock, &sums.Pile, &sums.Trickle, &sums.Demand, &sums.Next)
			slot = sums.At
		}
		return
	}
	if c.bad || n < 0 || n > int64(len(c.from)) || s.Last < 0 || s.Last > maxTime {
		c.bad = true
		return
	}
	s.Ring = make(lease.Ring, n, n+1)
	for i := range s.Ring {
		var ahead int64
		sums := &s.Ring[i]
		c.numbers(&ahead, &sums.Stock, &sums.Pile, &sums.Trickle, &sums.Demand, &sums.Next)
		if c.bad || ahead < 1 || ahead > last-slot {
			c.bad = true
			return
		}
		slot += ahead
		sums.At = slot
		s.Out.Add(sums.Sums)
	}
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
		s.Log = make([]lease.Entry, n)
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
	c.numbers(&r.Lease.Stock, &r.Lease.Pile, &r.Lease.Trickle, &r.Lease.Demand, &r.Lease.Next)
	c.numbers(&r.Lent, &r.Largest, &r.Declared, &r.Ahead, &r.Began, &r.Admitted, &r.Denied)
	c.numbers(&g.Number, &g.Tokens, &g.Trickle, &g.Pile, &g.TTL, &g.DenyFor, &g.Fallback, &g.Next, &g.Generation,
		&g.Remaining, &g.Reset, &g.Out, &g.Drawn)
	c.times(r.Start/lease.SlotLen, &r.Slot, &g.ExpirySlot)
	c.times(r.Start, &r.Expires, &r.Window, &r.NextWindow, &r.OnShare, &g.ValidFrom, &g.ValidUntil, &g.Unsure)
	c.flag(&r.Fresh)
}

func (c *coder) numbers(numbers ...*int64) {
	for _, v := range numbers {
		if c.write {
			c.to = binary.AppendVarint(c.to, *v)
		} else {
			*v = unzigzag(c.uvarint())
		}
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
			c.to = binary.AppendUvarint(c.to, zigzag(*v-base)+1)
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
	var v uint64
	for i := 0; i < len(c.from) && i < binary.MaxVarintLen64; i++ {
		b := c.from[i]
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			c.from = c.from[i+1:]
			return v
		}
	}
	c.bad, c.from = true, ""
	return 0
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
