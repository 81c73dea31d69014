package agent

import (
	"encoding/binary"

	"github.com/f4ee788f/quota/internal/limit"
)

const (
	// packedBytes is what a bucket has for its book: enough for nearly all with a lease of tokens, and an entry whose values
	// take 16 bytes is one and a half cache lines.
	packedBytes = 53
	// moreBytes is what a book may take besides: enough for a window's.
	moreBytes = 48
	// grain is what active counts, in microseconds: idleness is of many seconds.
	grain = 1 << 16
)

// packing goes over the numbers of a book, always in the same order. A number is known by how far it is from what it mostly
// is, given those before it: of one that is just that there is a bit and nothing else. One walk both writes and
// reads, so that what is read is what was written, to the last bit, and no number has a range of its own; a book that finds no
// room stays open.
type packing struct {
	bits    int64 // by number to come: whether it differs; when writing, all are as if they did
	differ  uint64
	bit     uint // written numbers
	writing bool
	full    bool
	at      uint // in bits
	room    [roomBytes]byte
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

// num writes a number or reads it. Of how far it is from what is usual as many bits are there in any case, beside one that says whether
// there are others: so many that most have no others.
func (p *packing) num(n *int64, usual int64, width uint) {
	if p.bits&1 == 0 {
		*n = usual
	} else {
		p.one(n, usual, width)
	}
	p.bits >>= 1
}

func (p *packing) one(n *int64, usual int64, width uint) {
	if !p.writing {
		d, shift := uint64(0), uint(0)
		for {
			v := p.take(width + 1)
			d |= v & (1<<width - 1) << shift
			if v>>width == 0 {
				break
			}
			shift += width
			width = further
		}
		*n = usual + (int64(d>>1) ^ -int64(d&1))
		return
	}
	if d := *n - usual; d != 0 { // it may wrap, and then so does what reads it
		p.differ |= 1 << p.bit
		rest := uint64(d)<<1 ^ uint64(d>>63)
		for {
			v := rest & (1<<width - 1)
			if rest >>= width; rest == 0 {
				p.put(v, width+1)
				break
			}
			p.put(v|1<<width, width+1)
			width = further
		}
	}
	p.bit++
}

// take reads so many bits, at most 56.
func (p *packing) take(n uint) uint64 {
	v := binary.LittleEndian.Uint64(p.room[min(p.at/8, roomBytes-8):]) >> (p.at % 8)
	p.at += n
	return v & (1<<n - 1)
}

// put writes so many bits, at most 56.
func (p *packing) put(v uint64, n uint) {
	if p.full = p.full || p.at/8 >= roomBytes-8; p.full {
		return
	}
	to := p.room[p.at/8:]
	binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(to)|v<<(p.at%8))
	p.at += n
}

// small is num for what takes less than a word.
func small[T ~uint8 | ~int32](p *packing, n *T, width uint) {
	v := int64(*n)
	p.num(&v, 0, width)
	*n = T(v)
}

// pack writes the book down, and reports false where there is no room.
func (b *book) pack() bool {
	p := packing{writing: true, bits: -1, at: 8 * wideHead}
	b.walk(&p)
	from := uint(wideHead - head)
	if b.rare() {
		p.bits, p.bit = -1, common+1
		b.walkRare(&p)
		p.differ |= wide
		from = 0
	}
	end := (p.at + 7) / 8
	if p.full || end-from > packedBytes+moreBytes {
		return false
	}
	binary.LittleEndian.PutUint64(p.room[from:], p.differ|binary.LittleEndian.Uint64(p.room[from:]))
	packed := p.room[from:end]
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
	p := packing{at: 8 * head}
	copy(p.room[:], b.packed[:])
	if s := b.cell.apart; s != nil && s.more != nil {
		copy(p.room[packedBytes:], s.more[:])
	}
	bits := binary.LittleEndian.Uint64(p.room[:])
	p.bits = int64(bits & (wide - 1))
	if bits&wide == 0 {
		b.walk(&p)
		return
	}
	p.at = 8 * wideHead
	b.walk(&p)
	p.bits = int64(bits >> (common + 1))
	b.walkRare(&p)
}

// usualFlags are those of a bucket that was granted something, and nothing else.
const usualFlags = 3

// flags are what is true or false.
func (b *book) flags() [12]*bool {
	return [...]*bool{&b.live, &b.met, &b.strained, &b.heavy, &b.early, &b.spans, &b.ended, &b.stopped, &b.failed, &b.gone, &b.dry, &b.free}
}

func (b *book) walk(p *packing) {
	flags := int64(b.alone) << len(b.flags())
	for i, f := range b.flags() {
		if *f {
			flags |= 1 << i
		}
	}
	p.num(&flags, usualFlags, 7)
	for i, f := range b.flags() {
		*f = flags>>i&1 != 0
	}
	b.alone = alone(flags >> len(b.flags()))

	// Times, most of which are those of the last renewal and its answer.
	p.num(&b.lastAsk, midAge, 42)
	p.num(&b.answeredAt, b.lastAsk, 20)
	p.num(&b.checkedAt, b.lastAsk, 22)
	p.num(&b.last, b.lastAsk, 15)
	p.num(&b.term, 0, 28)
	p.num(&b.renewAt, b.answeredAt+b.term-b.leadLocked(b.term), 24)
	p.num(&b.denyUntil, 0, 42)
	p.num(&b.resetAt, b.last, 27)
	p.num(&b.active, b.lastAsk/grain, 6)

	// The lease.
	p.num(&b.trickle, 0, 32)
	p.num(&b.room, 0, 12)
	whole, part := b.level/limit.Micro, b.level%limit.Micro
	p.num(&whole, b.room, 9)
	p.num(&part, 0, 21)
	b.level = whole*limit.Micro + part
	p.num(&b.granted, b.room+b.trickle/1000*(b.term/1000)/1_000_000, 9)
	p.num(&b.remaining, 0, 19)
	p.num(&b.generation, 1, 3)

	// Counts, most of which are those that the last renewal told of.
	p.num(&b.began, b.lastAsk, 24)
	p.num(&b.number, b.began, 6)
	p.num(&b.toldAdmitted, 0, 10)
	p.num(&b.toldDenied, 0, 10)
	p.num(&b.checked, b.toldAdmitted+b.toldDenied, 8)
	p.num(&b.spentBase, b.toldAdmitted, 8)
	p.num(&b.collectedAdmitted, b.toldAdmitted, 8)
	p.num(&b.collectedDenied, b.toldDenied, 8)
	in := b.toldAdmitted + b.room
	if b.has(durable) {
		in = 0
	}
	p.num(&b.cell.in, in, 12)
	refused := b.toldDenied
	if b.has(durable) {
		refused = 0
	}
	p.num(&b.cell.refused, refused, 8)

	p.num(&b.asked, 0, 8)
	p.num(&b.within, 0, 22)
	p.num(&b.checkAt, b.nextCheck(b.checkedAt, b.spans), 21)
	small(p, &b.uses, 4)
	p.num((*int64)(&b.void), 0, 16)

	// Numbers that hardly ever are not what follows from others.
	p.num(&b.voidAt, b.usualVoidAt(), 21)
	p.num(&b.aside, b.usualAsideLocked(), 14)
	p.num(&b.expires, b.usualEnd(), 14)
	p.num(&b.answered, b.toldAdmitted, 14)
	p.num(&b.answeredDenied, b.toldDenied, 14)
	p.num(&b.rowed, b.collectedAdmitted, 14)
	p.num(&b.rowedDenied, b.collectedDenied, 14)
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
	return b.debt != 0 || b.cell.folded != 0 || b.span != span{} || b.line != Line{} || b.reserves != reserves{} || b.hopeless != 0 || b.opened != 0 || b.nobodys != 0 || b.touched != 0 || b.least != 0
}

func (b *book) walkRare(p *packing) {
	turnsAt := int64(0)
	if b.spans {
		turnsAt = b.resetAt
	}
	p.num(&b.debt, 0, 14)
	p.num(&b.cell.folded, 0, 14)
	p.num(&b.window, 0, 14)
	p.num(&b.length, 0, 14)
	p.num(&b.share, 0, 14)
	p.num(&b.turnAt, turnsAt, 14)
	p.num(&b.rest, 0, 14)
	p.num(&b.next, 0, 14)
	p.num(&b.edgeAsk, b.turnAt, 14)
	p.num(&b.turned, 0, 14)
	p.num(&b.offered, 0, 14)
	p.num(&b.line.Force, 0, 14)
	p.num(&b.line.Since, 0, 14)
	p.num(&b.line.Retry, 0, 14)
	small(p, &b.line.Fails, 8)
	small(p, &b.line.Hungry, 8)
	p.num(&b.all, 0, 14)
	p.num(&b.reserved, 0, 14)
	p.num(&b.reservedOf, b.window, 14)
	p.num(&b.outside, 0, 14)
	p.num(&b.hopeless, 0, 14)
	p.num(&b.opened, 0, 14)
	p.num(&b.nobodys, 0, 14)
	both := int64(b.least)<<8 | int64(b.touched)
	p.num(&both, 0, 14)
	b.least, b.touched = int32(both>>8), uint8(both)
}
