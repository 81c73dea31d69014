package agent

import (
	"encoding/binary"
	"math/bits"

	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	// packedBytes is what a bucket has for its book: enough for nearly all with a lease of tokens, and an entry whose values
	// take 16 bytes is one and a half cache lines.
	packedBytes = 53
	// moreBytes is what a book may take besides: enough for a window's.
	moreBytes = 48
	// grain is what active counts, in microseconds: idleness is of many seconds.
	grain = 1 << 18
)

// packing is a book's numbers on their way, always in the same order. A number is known by how far it is from what it mostly
// is, given those before it: of one that is just that there is a bit and nothing else. One walk over a book both writes and
// reads, so that what is read is what was written, to the last bit; a book that finds no room, for all or for one number, stays open.
//
// Which numbers differ is another matter in each book. A processor that had to guess it, number by number, would spend more on wrong guesses than on
// all else: so a walk goes the same way for all, and only what differs is read and written.
type packing struct {
	writing bool
	full    bool       // a number has no room
	far     [64]uint64 // how far they are from what is usual; see signed
	widths  [64]uint8  // of those that are taken down
}

const (
	// common is how many numbers may differ in most books; those behind them do in few, and have their bits only there.
	common   = 39
	wide     = 1 << common // there are others
	head     = (common + 1) / 8
	wideHead = 8
	// midAge is about where times are that take 42 bits for the first weeks of an agent's life.
	midAge = 1 << 41
	// further is how many bits more a number has at a time that does not go into those that it is said to take.
	further = 6
	// roomBytes has what is packed, the head of a wide one, and what is read and written beside a number, which is a word.
	roomBytes = wideHead + packedBytes + moreBytes + 8
)

// widths are those of all numbers, as the walks say, for reading: what is read has to be known before it is walked over.
var widths = func() [64]uint8 {
	p := packing{writing: true}
	b := book{Bucket: new(Bucket), terms: new(terms)}
	b.walk(&p)
	b.walkRare(&p)
	return p.widths
}()

// num takes number i down, or sets it to what was read, and returns the next. Of how far it is from what is usual as many bits are there as its
// width says, beside one that says whether there are others: so many that most have no others.
func (p *packing) num(i int, n *int64, usual int64, width uint8) int {
	if p.writing {
		p.far[i], p.widths[i] = signed(*n-usual), width // it may wrap, and then so does what reads it
	} else {
		*n = usual + unsigned(p.far[i])
	}
	return i + 1
}

// count is num of what is not below 0, as a rule, and mostly small.
func (p *packing) count(i int, n *int64, width uint8) int {
	if p.writing {
		p.far[i], p.widths[i] = uint64(*n), width
	} else {
		*n = int64(p.far[i])
	}
	return i + 1
}

// millis is num of what is mostly in whole milliseconds. Of what is not one bit is lost to saying so: next to the ends of all there is no room.
func (p *packing) millis(i int, n *int64, usual int64, width uint8) int {
	switch far := p.far[i]; {
	case !p.writing && far&1 == 0:
		*n = (usual/1000 + unsigned(far>>1)) * 1000
	case !p.writing:
		*n = usual + unsigned(far>>1)
	case *n%1000 == 0:
		p.far[i] = signed(*n/1000-usual/1000) << 1
	default:
		far = signed(*n - usual)
		p.far[i], p.full = far<<1|1, p.full || far>>63 != 0
	}
	p.widths[i] = width
	return i + 1
}

// since is num of a time that is mostly 0, and otherwise near another. Of a difference that takes all bits there is no room.
func (p *packing) since(i int, n *int64, near int64, width uint8) int {
	switch far := p.far[i]; {
	case !p.writing && far == 0:
		*n = 0
	case !p.writing:
		*n = near + unsigned(far-1)
	case *n == 0:
		p.far[i] = 0
	default:
		p.far[i] = signed(*n-near) + 1
		p.full = p.full || p.far[i] == 0
	}
	p.widths[i] = width
	return i + 1
}

// signed is a number that takes few bits where n is small, be it below 0 or not.
func signed(n int64) uint64 { return uint64(n)<<1 ^ uint64(n>>63) }

// unsigned is what signed was of.
func unsigned(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// write writes those of the first n numbers that differ behind the head of a wide book, and returns which they are and where they end; 0 where there is no room.
func (p *packing) write(room *[roomBytes]byte, n int) (differ uint64, end uint) {
	for i, d := range p.far[:n] {
		differ |= (d | -d) >> 63 << i
	}
	at, acc, ready := uint(wideHead), uint64(0), uint(0) // ready bits are in acc, as yet fewer than eight
	put := func(v uint64, width uint) {
		acc |= v << (ready & 63)
		binary.LittleEndian.PutUint64(room[min(at, roomBytes-8):], acc)
		ready += width
		at += ready / 8
		acc >>= ready &^ 7 & 63
		ready &= 7
	}
	for left := differ; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		width := uint(p.widths[i]) & 63
		rest := p.far[i]
		for rest>>width != 0 {
			put(rest&(1<<width-1)|1<<width, width+1)
			rest >>= width
			width = further
		}
		put(rest, width+1)
		if at > roomBytes-8 {
			return 0, 0
		}
	}
	return differ, at + (ready+7)/8
}

// read reads the numbers that differ, from a bit on.
func (p *packing) read(room *[roomBytes]byte, differ uint64, at uint) {
	for ; differ != 0; differ &= differ - 1 {
		i := bits.TrailingZeros64(differ)
		width := uint(widths[i]) & 63
		v := binary.LittleEndian.Uint64(room[min(at/8, roomBytes-8):]) >> (at & 7)
		at += width + 1
		d := v & (1<<width - 1)
		for shift := width; v>>width&1 != 0; shift += further {
			width = further
			v = binary.LittleEndian.Uint64(room[min(at/8, roomBytes-8):]) >> (at & 7)
			at += further + 1
			d |= v & (1<<further - 1) << (shift & 63)
		}
		p.far[i] = d
	}
}

// pack writes the book down, and reports false where there is no room.
func (b *book) pack() bool {
	p := packing{writing: true}
	var room [roomBytes]byte
	b.walk(&p)
	from, n := uint(wideHead-head), common
	rare := b.rare()
	if rare {
		b.walkRare(&p)
		from, n = 0, len(p.far)
	}
	differ, end := p.write(&room, n)
	if p.full || end == 0 || end-from > packedBytes+moreBytes {
		return false
	}
	if rare {
		differ |= wide
	}
	binary.LittleEndian.PutUint64(room[from:], differ|binary.LittleEndian.Uint64(room[from:]))
	packed := room[from:end]
	s := b.seldom()
	if len(packed) <= packedBytes {
		if s != nil {
			s.more = nil
		}
	} else {
		s = b.rarely()
		if s.more == nil {
			s.more = new([moreBytes]byte)
		}
		copy(s.more[:], packed[packedBytes:])
	}
	copy(b.packed[:], packed)
	return true
}

// unpack reads what pack wrote into a book of zeros.
func (b *book) unpack() {
	var p packing
	var room [roomBytes]byte
	copy(room[:], b.packed[:])
	if s := b.cell.apart; s != nil && s.more != nil {
		copy(room[packedBytes:], s.more[:])
	}
	differ := binary.LittleEndian.Uint64(room[:])
	if differ&wide == 0 {
		p.read(&room, differ&(wide-1), 8*head)
		b.walk(&p)
		return
	}
	p.read(&room, differ&^wide, 8*wideHead)
	b.walk(&p)
	b.walkRare(&p)
}

// small is num for what takes less than a word.
func small[T ~uint8 | ~int32](p *packing, i int, n *T, width uint8) int {
	v := int64(*n)
	i = p.count(i, &v, width)
	*n = T(v)
	return i
}

// usualFlags are those of a bucket that was granted something, and nothing else.
const usualFlags = 3

// flags are what is true or false, and how it goes on alone.
func (b *book) flags() int64 {
	return oneIf(b.live) | oneIf(b.met)<<1 | oneIf(b.strained)<<2 | oneIf(b.heavy)<<3 | oneIf(b.early)<<4 | oneIf(b.spans)<<5 | oneIf(b.ended)<<6 |
		oneIf(b.stopped)<<7 | oneIf(b.failed)<<8 | oneIf(b.gone)<<9 | oneIf(b.dry)<<10 | oneIf(b.free)<<11 | int64(b.alone)<<12
}

func (b *book) setFlags(f int64) {
	is := func(n int) bool { return f>>n&1 != 0 }
	b.live, b.met, b.strained, b.heavy, b.early, b.spans, b.ended = is(0), is(1), is(2), is(3), is(4), is(5), is(6)
	b.stopped, b.failed, b.gone, b.dry, b.free, b.alone = is(7), is(8), is(9), is(10), is(11), alone(f>>12)
}

// oneIf is 1 for true.
func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// walk goes over the numbers that may differ in most books, and returns how many there are.
func (b *book) walk(p *packing) int {
	flags := b.flags()
	i := p.num(0, &flags, usualFlags, 7)
	b.setFlags(flags)

	// Times, most of which are those of the last renewal and its answer.
	i = p.num(i, &b.lastAsk, midAge, 42)
	i = p.num(i, &b.answeredAt, b.lastAsk, 20)
	i = p.num(i, &b.checkedAt, b.lastAsk, 22)
	i = p.num(i, &b.last, b.lastAsk, 28)
	i = p.millis(i, &b.term, 0, 20)
	i = p.num(i, &b.renewAt, b.answeredAt+b.term-b.leadLocked(b.term), 24)
	i = p.since(i, &b.denyUntil, b.lastAsk, 27)
	i = p.millis(i, &b.resetAt, b.last, 20)
	i = p.num(i, &b.active, b.lastAsk/grain, 8)

	// The lease.
	i = p.count(i, &b.trickle, 31)
	i = p.count(i, &b.room, 11)
	whole, part := b.level/limit.Micro, b.level%limit.Micro
	i = p.num(i, &whole, b.room, 9)
	i = p.count(i, &part, 20)
	b.level = whole*limit.Micro + part
	i = p.num(i, &b.granted, b.room+b.trickle/1000*(b.term/1000)/1_000_000, 9)
	i = p.count(i, &b.remaining, 18)
	i = p.num(i, &b.generation, 1, 3)

	// Counts, most of which are those that the last renewal told of.
	i = p.num(i, &b.began, b.lastAsk, 24)
	i = p.num(i, &b.number, b.began, 6)
	i = p.count(i, &b.toldAdmitted, 9)
	i = p.count(i, &b.toldDenied, 9)
	i = p.num(i, &b.checked, b.toldAdmitted+b.toldDenied, 8)
	i = p.num(i, &b.spentBase, b.toldAdmitted, 8)
	i = p.num(i, &b.collectedAdmitted, b.toldAdmitted, 8)
	i = p.num(i, &b.collectedDenied, b.toldDenied, 8)
	in := b.toldAdmitted + b.room
	if b.has(durable) {
		in = 0
	}
	i = p.num(i, &b.cell.in, in, 12)

	i = p.count(i, &b.asked, 7)
	i = p.count(i, &b.within, 27)
	i = p.num(i, &b.checkAt, b.nextCheck(b.checkedAt, b.spans), 21)
	i = small(p, i, &b.uses, 3)
	i = p.count(i, (*int64)(&b.void), 16)

	// Numbers that hardly ever are not what follows from others.
	i = p.num(i, &b.voidAt, b.usualVoidAt(), 21)
	i = p.num(i, &b.aside, b.usualAsideLocked(), 14)
	i = p.num(i, &b.expires, b.usualEnd(), 14)
	i = p.num(i, &b.answered, b.toldAdmitted, 14)
	i = p.num(i, &b.answeredDenied, b.toldDenied, 14)
	i = p.num(i, &b.rowed, b.collectedAdmitted, 14)
	return p.num(i, &b.rowedDenied, b.collectedDenied, 14)
}

// usualVoidAt is when the last refill was, if any found no room.
func (b *book) usualVoidAt() int64 {
	if b.void == 0 {
		return 0
	}
	return b.last
}

func (b *book) usualEnd() int64 { return b.answeredAt + b.term - margin }

// rare reports whether something is in use that few books have.
func (b *book) rare() bool {
	return b.debt != 0 || b.cell.folded != 0 || b.span != span{} || b.line != Line{} || b.reserves != reserves{} || b.hopeless != 0 || b.unleased != 0 || b.nobodys != 0 || b.touched != 0 || b.least != 0 || b.unitAt != 0
}

// walkRare goes over those that are 0 in most, and returns where they end.
func (b *book) walkRare(p *packing) int {
	turnsAt := int64(0)
	if b.spans {
		turnsAt = b.resetAt
	}
	i := p.num(common+1, &b.debt, 0, 14)
	i = p.num(i, &b.cell.folded, 0, 14)
	i = p.num(i, &b.window, 0, 14)
	i = p.num(i, &b.length, 0, 14)
	i = p.num(i, &b.share, 0, 14)
	i = p.num(i, &b.turnAt, turnsAt, 14)
	i = p.num(i, &b.rest, 0, 14)
	i = p.num(i, &b.next, 0, 14)
	i = p.num(i, &b.edgeAsk, b.turnAt, 14)
	i = p.num(i, &b.turned, 0, 14)
	i = p.num(i, &b.offered, 0, 14)
	i = p.num(i, &b.line.Force, 0, 14)
	i = p.num(i, &b.line.Since, 0, 14)
	i = p.num(i, &b.line.Retry, 0, 14)
	calls := int64(b.line.Fails)<<32 | int64(uint32(b.line.Hungry))
	i = p.count(i, &calls, 8)
	b.line.Fails, b.line.Hungry = int32(calls>>32), int32(calls)
	i = p.since(i, &b.unitAt, b.resetAt, 14)
	i = p.num(i, &b.all, 0, 14)
	i = p.num(i, &b.reserved, 0, 14)
	i = p.num(i, &b.reservedOf, b.window, 14)
	i = p.num(i, &b.outside, 0, 14)
	i = p.num(i, &b.hopeless, 0, 14)
	i = p.num(i, &b.unleased, 0, 14)
	i = p.num(i, &b.nobodys, 0, 14)
	both := int64(b.least)<<8 | int64(b.touched)
	i = p.num(i, &both, 0, 14)
	b.least, b.touched = int32(both>>8), uint8(both)
	return i
}
