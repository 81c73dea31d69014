package agent

import "encoding/binary"

const (
	// packedBytes is what a bucket has for its book: enough for nearly all with a lease of tokens, and an entry whose values
	// take 16 bytes is two cache lines, of which the second has all that a decision reads.
	packedBytes = 60
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
	at      int
	b       []byte
}

const (
	// common is how many numbers may differ in most books; those behind them do in few, and have their bits only there.
	common   = 31
	wide     = 1 << common // there are others
	head     = (common + 1) / 8
	wideHead = 8
	// midAge is about where times are that take six bytes for the first weeks of an agent's life.
	midAge = 1 << 41
)

// num writes a number or reads it.
func (p *packing) num(n *int64, usual int64) {
	if p.bits&1 == 0 {
		*n = usual
	} else {
		p.one(n, usual)
	}
	p.bits >>= 1
}

func (p *packing) one(n *int64, usual int64) {
	if !p.writing {
		d, size := binary.Varint(p.b[p.at:])
		p.at += size
		*n = usual + d
		return
	}
	d := *n - usual // it may wrap, and then so does what reads it
	if d != 0 {
		p.differ |= 1 << p.bit
		if p.full = p.full || p.at > len(p.b)-binary.MaxVarintLen64; !p.full {
			p.at += binary.PutVarint(p.b[p.at:], d)
		}
	}
	p.bit++
}

// small is num for what takes less than a word.
func small[T ~uint8 | ~int32](p *packing, n *T) {
	v := int64(*n)
	p.num(&v, 0)
	*n = T(v)
}

// pack writes the book down, and reports false where there is no room.
func (b *book) pack() bool {
	var room [packedBytes + moreBytes]byte
	p := packing{writing: true, bits: -1, b: room[:], at: wideHead}
	b.walk(&p)
	from := wideHead - head
	if b.rare() {
		p.bits, p.bit = -1, common+1
		b.walkUsual(&p)
		b.walkRare(&p)
		p.differ |= wide
		from = 0
	}
	if p.full || p.at-from > len(room) {
		return false
	}
	binary.LittleEndian.PutUint64(room[:], p.differ<<(8*from))
	packed := room[from:p.at]
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
	p := packing{b: b.packed[:], at: head}
	if s := b.cell.apart; s != nil && s.more != nil {
		var room [packedBytes + moreBytes]byte
		copy(room[copy(room[:], b.packed[:]):], s.more[:])
		p.b = room[:]
	}
	bits := binary.LittleEndian.Uint64(p.b)
	p.bits = int64(bits & (wide - 1))
	if bits&wide == 0 {
		b.walk(&p)
		b.walkUsual(&packing{})
		return
	}
	p.at = wideHead
	b.walk(&p)
	p.bits = int64(bits >> (common + 1))
	b.walkUsual(&p)
	b.walkRare(&p)
}

// usualFlags are those of a bucket that was granted something, and nothing else.
const usualFlags = 3

// flags are what is true or false.
func (b *book) flags() [10]*bool {
	return [...]*bool{&b.live, &b.met, &b.early, &b.spans, &b.ended, &b.stopped, &b.failed, &b.gone, &b.dry, &b.free}
}

func (b *book) walk(p *packing) {
	flags := int64(b.alone) << len(b.flags())
	for i, f := range b.flags() {
		if *f {
			flags |= 1 << i
		}
	}
	p.num(&flags, usualFlags)
	for i, f := range b.flags() {
		*f = flags>>i&1 != 0
	}
	b.alone = alone(flags >> len(b.flags()))

	// Times, most of which are those of the last renewal and its answer.
	p.num(&b.lastAsk, midAge)
	p.num(&b.answeredAt, b.lastAsk)
	p.num(&b.checkedAt, b.lastAsk)
	p.num(&b.last, b.lastAsk)
	p.num(&b.term, 0)
	p.num(&b.renewAt, b.answeredAt+b.term-b.leadLocked(b.term))
	p.num(&b.denyUntil, 0)
	p.num(&b.resetAt, b.last)
	p.num(&b.active, b.lastAsk/grain)

	// The lease.
	p.num(&b.trickle, 0)
	p.num(&b.room, 0)
	p.num(&b.fraction, 0)
	p.num(&b.granted, b.room+b.trickle/1000*(b.term/1000)/1_000_000)
	p.num(&b.remaining, 0)
	p.num(&b.generation, 1)

	// Counts, most of which are those that the last renewal told of.
	p.num(&b.began, b.lastAsk)
	p.num(&b.number, b.began)
	p.num(&b.toldAdmitted, 0)
	p.num(&b.toldDenied, 0)
	p.num(&b.checked, b.toldAdmitted+b.toldDenied)
	p.num(&b.spentBase, b.toldAdmitted)
	p.num(&b.collectedAdmitted, b.toldAdmitted)
	p.num(&b.collectedDenied, b.toldDenied)
	p.num(&b.cell.folded, 0)
	in := b.toldAdmitted + b.room
	if b.has(durable) {
		in = 0
	}
	p.num(&b.cell.in, in)

	p.num(&b.asked, 0)
	p.num(&b.within, b.term)
	p.num(&b.checkAt, b.nextCheck(b.checkedAt, b.spans))
	small(p, &b.uses)
}

// walkUsual is of numbers that hardly ever are not what follows from others.
func (b *book) walkUsual(p *packing) {
	p.num(&b.debt, 0)
	p.num(&b.expires, b.usualEnd())
	p.num(&b.answered, b.toldAdmitted)
	p.num(&b.answeredDenied, b.toldDenied)
	p.num(&b.rowed, b.collectedAdmitted)
	p.num(&b.rowedDenied, b.collectedDenied)
}

func (b *book) usualEnd() int64 { return b.answeredAt + b.term - margin }

// rare reports whether something is in use that few books have.
func (b *book) rare() bool {
	return b.debt != 0 || b.expires != b.usualEnd() || b.answered != b.toldAdmitted || b.answeredDenied != b.toldDenied ||
		b.rowed != b.collectedAdmitted || b.rowedDenied != b.collectedDenied || b.span != span{} || b.line != Line{} || b.reserves != reserves{} || b.hopeless != 0 || b.opened != 0 ||
		b.touched != 0 || b.least != 0
}

func (b *book) walkRare(p *packing) {
	turnsAt := int64(0)
	if b.spans {
		turnsAt = b.resetAt
	}
	p.num(&b.window, 0)
	p.num(&b.length, 0)
	p.num(&b.share, 0)
	p.num(&b.turnAt, turnsAt)
	p.num(&b.rest, 0)
	p.num(&b.next, 0)
	p.num(&b.edgeAsk, b.turnAt)
	p.num(&b.turned, 0)
	p.num(&b.offered, 0)
	p.num(&b.line.Force, 0)
	p.num(&b.line.Since, 0)
	p.num(&b.line.Retry, 0)
	small(p, &b.line.Fails)
	small(p, &b.line.Hungry)
	p.num(&b.all, 0)
	p.num(&b.reserved, 0)
	p.num(&b.reservedOf, b.window)
	p.num(&b.outside, 0)
	p.num(&b.hopeless, 0)
	p.num(&b.opened, 0)
	small(p, &b.touched)
	small(p, &b.least)
}
