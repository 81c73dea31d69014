package doors

import (
	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// maxBatch is how many questions are in hand together: about as many as a processor can wait for memory for.
const maxBatch = 16

// batch is questions of one message that are decided together: what each needs from memory is asked for before the first
// is decided, and so is what the answers tell. Among more buckets than a processor's cache holds, that is most of what a
// decision takes. It is its stream's leader's.
type batch struct {
	questions  [maxBatch]ask.Question
	attributes [maxBatch][]client.Attribute
	prepared   [maxBatch]client.Prepared
	count, at  int // questions, and how many of them were asked

	ids       [maxBatch]uint64
	decisions [maxBatch]client.Decision
	details   [maxBatch]client.Details
	answers   int // that are decided, and not in a frame
}

// asked reports whether all were.
func (b *batch) asked() bool { return b.at == b.count }

// read takes the next questions of a frame, and prepares them; false at its end.
func (b *batch) read(c Client, f *ask.Frame) (bool, error) {
	b.count, b.at = 0, 0
	for b.count < maxBatch {
		q := &b.questions[b.count]
		ok, err := f.Question(q)
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		a := b.attributes[b.count][:0]
		for i := range q.Attributes {
			a = append(a, client.Attribute(q.Attributes[i]))
		}
		b.attributes[b.count], b.prepared[b.count] = a, c.Prepare(a...)
		b.count++
	}
	client.Fetch(b.prepared[:b.count])
	return b.count > 0, nil
}

// decide decides the next question, for a leader. Where that has to wait, the batch is another's when it returns.
func (b *batch) decide(l *leader) (id uint64, d client.Decision) {
	q, p := &b.questions[b.at], &b.prepared[b.at]
	b.at++
	id, l.timeout = q.ID, q.Timeout
	if q.Units < 0 || q.Units > limit.MaxUnits {
		return id, client.Decision{Reason: client.ReasonInvalid}
	}
	return id, p.AllowN(l.asking, q.Units)
}

// decided keeps a decision, to be answered.
func (b *batch) decided(id uint64, d client.Decision) {
	b.ids[b.answers], b.decisions[b.answers] = id, d
	b.answers++
}

// answer adds the answers to a frame.
func (b *batch) answer(f *ask.Frame) {
	decisions := b.decisions[:b.answers]
	client.DetailsOf(decisions, b.details[:b.answers])
	for i := range decisions {
		f.Answer(answerOf(b.ids[i], &decisions[i], &b.details[i]))
	}
	clear(decisions) // which hold what decided
	b.answers = 0
}

func answerOf(id uint64, d *client.Decision, t *client.Details) *ask.Answer {
	return &ask.Answer{
		ID: id, Allowed: d.Allowed, Reason: uint8(d.Reason), RetryAfter: d.RetryAfter.Microseconds(),
		Limit: t.Limit, Quota: t.Quota, Window: t.Window.Microseconds(), Remaining: t.Remaining, Reset: t.Reset.Microseconds(),
	}
}
