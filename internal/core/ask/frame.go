package ask

import (
	"errors"
	"fmt"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Bounds of a frame. A process asks for at most a few thousand callers at once. A question of 32 attributes has
// at most 11 kB.
const (
	MaxQuestions  = 1024
	MaxAttributes = 32
	MaxCosts      = limit.MaxCosts
	MaxBytes      = 256 << 10
)

// ErrFrame means that a frame is not what the protocol says, or beyond a bound of it.
var ErrFrame = errors.New("ask: invalid frame")

// Question is one request to the limits. What Frame.Question sets it to is valid until the
// frame is used again: the attributes' strings are the frame's own bytes.
type Question struct {
	ID         uint64
	Units      int64
	Timeout    int64 // microseconds; 0 for the agent's own
	Attributes []limit.Attribute
	Costs      []Cost // beside requests
}

// Cost is units of one of the policy's costs.
type Cost struct {
	Name  string
	Units int64
}

// Answer is a decision; times are microseconds.
type Answer struct {
	ID         uint64
	Allowed    bool
	Reason     uint8 // of client.Reason
	RetryAfter int64
	Limit      string // the frame's own bytes, where Frame.Next set it
	Cost       string // likewise
	Quota      int64
	Window     int64
	Remaining  int64
	Reset      int64
}

// Field numbers of decision.proto.
const (
	questionsField = 1
	answersField   = 1
	doneField      = 2
	closingField   = 3
)

// Frame is a message: encoded, to be sent; or received, to be read from its beginning. Not for concurrent use.
type Frame struct {
	buf []byte
	at  int // read so far
	n   int // questions or answers written or read

	// What a frame of answers says besides; see DecideResponse.
	Done, Closing bool
}

// Reset empties the frame. It keeps its memory, unless that is beyond a bound.
func (f *Frame) Reset() {
	*f = Frame{buf: f.buf[:0]}
	if cap(f.buf) > MaxBytes {
		f.buf = nil
	}
}

// Len is how many questions or answers were written or read.
func (f *Frame) Len() int { return f.n }

// Full reports whether another question may not fit.
func (f *Frame) Full() bool { return f.n >= MaxQuestions || len(f.buf) > MaxBytes-maxQuestion }

// maxQuestion is the most bytes that a question takes.
const maxQuestion = 32 << 10

// Fits reports whether a question of these attributes and costs may be asked at all.
func Fits(attributes []limit.Attribute, costs []Cost) bool {
	size := 64
	for i := range costs {
		size += len(costs[i].Name) + 32
	}
	for i := range attributes {
		size += len(attributes[i].Name) + len(attributes[i].Value) + 16
	}
	return len(attributes) <= MaxAttributes && len(costs) <= MaxCosts && size <= maxQuestion
}

// open begins a nested message, whose length is not known yet, and close ends it. A length takes
// two bytes where it can, which fits most: nothing is moved then.
func (f *Frame) open(field protowire.Number) int {
	f.buf = protowire.AppendTag(f.buf, field, protowire.BytesType)
	f.buf = append(f.buf, 0, 0)
	return len(f.buf)
}

func (f *Frame) close(start int) {
	size := len(f.buf) - start
	if size < 1<<14 {
		f.buf[start-2], f.buf[start-1] = byte(size)|0x80, byte(size>>7)
		return
	}
	f.buf = append(f.buf, 0)
	copy(f.buf[start+1:], f.buf[start:])
	f.buf[start-2], f.buf[start-1], f.buf[start] = byte(size)|0x80, byte(size>>7)|0x80, byte(size>>14)
}

func (f *Frame) number(field protowire.Number, v uint64) {
	if v != 0 {
		f.buf = protowire.AppendTag(f.buf, field, protowire.VarintType)
		f.buf = protowire.AppendVarint(f.buf, v)
	}
}

func (f *Frame) text(field protowire.Number, s string) {
	if s != "" {
		f.buf = protowire.AppendTag(f.buf, field, protowire.BytesType)
		f.buf = protowire.AppendString(f.buf, s)
	}
}

// Ask adds a question.
func (f *Frame) Ask(q *Question) {
	start := f.open(questionsField)
	f.number(1, q.ID)
	if q.Units != 1 {
		f.buf = protowire.AppendTag(f.buf, 2, protowire.VarintType)
		f.buf = protowire.AppendVarint(f.buf, uint64(q.Units))
	}
	for i := range q.Attributes {
		a := f.open(3)
		f.text(1, q.Attributes[i].Name)
		f.text(2, q.Attributes[i].Value)
		f.close(a)
	}
	f.number(4, uint64(q.Timeout))
	for i := range q.Costs {
		c := f.open(5)
		f.text(1, q.Costs[i].Name)
		f.number(2, uint64(q.Costs[i].Units))
		f.close(c)
	}
	f.close(start)
	f.n++
}

// Answer adds an answer.
func (f *Frame) Answer(a *Answer) {
	start := f.open(answersField)
	f.number(1, a.ID)
	if a.Allowed {
		f.number(2, 1)
	}
	f.number(3, uint64(a.Reason)+1) // the protocol's 0 is UNSPECIFIED
	f.number(4, uint64(a.RetryAfter))
	f.text(5, a.Limit)
	f.number(6, uint64(a.Quota))
	f.number(7, uint64(a.Window))
	f.number(8, uint64(a.Remaining))
	f.number(9, uint64(a.Reset))
	f.text(10, a.Cost)
	f.close(start)
	f.n++
}

// End says what a frame of answers says besides.
func (f *Frame) End(done, closing bool) {
	f.Done, f.Closing = done, closing
	if done {
		f.number(doneField, 1)
	}
	if closing {
		f.number(closingField, 1)
	}
}

// Question reads the next question; false at the frame's end. Attributes beyond the bound are an error, and what
// this version does not know is passed over.
func (f *Frame) Question(q *Question) (bool, error) {
	for f.at < len(f.buf) {
		field, body, _, err := f.next(&f.at, len(f.buf))
		if err != nil {
			return false, err
		}
		if field != questionsField || body == nil {
			continue
		}
		if f.n++; f.n > MaxQuestions {
			return false, fmt.Errorf("%w: more than %d questions", ErrFrame, MaxQuestions)
		}
		return true, q.read(body)
	}
	return false, nil
}

func (q *Question) read(b []byte) error {
	*q = Question{Units: 1, Attributes: q.Attributes[:0], Costs: q.Costs[:0]}
	inner := Frame{buf: b}
	for at := 0; at < len(b); {
		field, body, v, err := inner.next(&at, len(b))
		if err != nil {
			return err
		}
		switch {
		case field == 1 && body == nil:
			q.ID = v
		case field == 2 && body == nil:
			q.Units = int64(v)
		case field == 3 && body != nil:
			if len(q.Attributes) == MaxAttributes {
				return fmt.Errorf("%w: more than %d attributes", ErrFrame, MaxAttributes)
			}
			a, err := attribute(body)
			if err != nil {
				return err
			}
			q.Attributes = append(q.Attributes, a)
		case field == 4 && body == nil:
			q.Timeout = int64(v)
		case field == 5 && body != nil:
			if len(q.Costs) == MaxCosts {
				return fmt.Errorf("%w: more than %d costs", ErrFrame, MaxCosts)
			}
			c, err := cost(body)
			if err != nil {
				return err
			}
			q.Costs = append(q.Costs, c)
		}
	}
	return nil
}

func cost(b []byte) (c Cost, err error) {
	inner := Frame{buf: b}
	for at := 0; at < len(b); {
		field, body, v, err := inner.next(&at, len(b))
		if err != nil {
			return c, err
		}
		switch {
		case field == 1 && body != nil:
			c.Name = text(body)
		case field == 2 && body == nil:
			c.Units = int64(v)
		}
	}
	return c, nil
}

func attribute(b []byte) (a limit.Attribute, err error) {
	inner := Frame{buf: b}
	for at := 0; at < len(b); {
		field, body, _, err := inner.next(&at, len(b))
		if err != nil {
			return a, err
		}
		switch {
		case field == 1 && body != nil:
			a.Name = text(body)
		case field == 2 && body != nil:
			a.Value = text(body)
		}
	}
	return a, nil
}

// text is b as a string, without a copy.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Next reads the next answer; false at the frame's end, when Done and Closing are known too.
func (f *Frame) Next(a *Answer) (bool, error) {
	for f.at < len(f.buf) {
		field, body, v, err := f.next(&f.at, len(f.buf))
		switch {
		case err != nil:
			return false, err
		case field == answersField && body != nil:
			f.n++
			return true, a.read(body)
		case field == doneField && body == nil:
			f.Done = v != 0
		case field == closingField && body == nil:
			f.Closing = v != 0
		}
	}
	return false, nil
}

func (a *Answer) read(b []byte) error {
	*a = Answer{}
	inner := Frame{buf: b}
	for at := 0; at < len(b); {
		field, body, v, err := inner.next(&at, len(b))
		if err != nil {
			return err
		}
		if (field == 5 || field == 10) != (body != nil) {
			continue // of another type than it should be
		}
		switch field {
		case 1:
			a.ID = v
		case 2:
			a.Allowed = v != 0
		case 3:
			a.Reason = uint8(min(max(v, 1)-1, 255))
		case 4:
			a.RetryAfter = int64(v)
		case 5:
			a.Limit = text(body)
		case 6:
			a.Quota = int64(v)
		case 7:
			a.Window = int64(v)
		case 8:
			a.Remaining = int64(v)
		case 9:
			a.Reset = int64(v)
		case 10:
			a.Cost = text(body)
		}
	}
	return nil
}

// next reads a field: its body where it has a length, never nil then, else its number.
func (f *Frame) next(at *int, end int) (field protowire.Number, body []byte, v uint64, err error) {
	b := f.buf[*at:end]
	field, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil, 0, fmt.Errorf("%w: %w", ErrFrame, protowire.ParseError(n))
	}
	b = b[n:]
	*at += n
	switch kind {
	case protowire.VarintType:
		v, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		body, n = protowire.ConsumeBytes(b)
		if n >= 0 && body == nil {
			body = []byte{}
		}
	default:
		n = protowire.ConsumeFieldValue(field, kind, b)
		field = 0 // none of ours
	}
	if n < 0 {
		return 0, nil, 0, fmt.Errorf("%w: %w", ErrFrame, protowire.ParseError(n))
	}
	*at += n
	return field, body, v, nil
}
