package ask

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

var (
	words      = rapid.StringOfN(rapid.RuneFrom([]rune("abcdefghij /:ü")), 0, 300, -1)
	numbers    = rapid.Int64Range(0, 1<<60)
	attributes = rapid.Custom(func(t *rapid.T) limit.Attribute {
		return limit.Attribute{Name: words.Draw(t, "name"), Value: words.Draw(t, "value")}
	})
	costs = rapid.Custom(func(t *rapid.T) Cost {
		return Cost{words.Draw(t, "name"), rapid.Int64Range(-1, 1<<40).Draw(t, "units")}
	})
)

// What is written by hand is what generated code reads, and the other way round.
func TestQuestionsAreTheProtocols(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hand Frame
		var want []Question
		generated := &quotav1.DecideRequest{}
		for range rapid.IntRange(0, 20).Draw(t, "questions") {
			q := Question{
				ID: rapid.Uint64().Draw(t, "id"), Units: rapid.Int64Range(-1, 1<<40).Draw(t, "units"), Timeout: numbers.Draw(t, "timeout"),
				Attributes: rapid.SliceOfN(attributes, 0, 32).Draw(t, "attributes"),
				Costs:      rapid.SliceOfN(costs, 0, MaxCosts).Draw(t, "costs"),
			}
			want = append(want, q)
			hand.Ask(&q)
			g := &quotav1.Question{Id: q.ID, Units: proto.Int64(q.Units), TimeoutUs: q.Timeout}
			for _, a := range q.Attributes {
				g.Attributes = append(g.Attributes, &quotav1.Attribute{Name: a.Name, Value: a.Value})
			}
			for _, c := range q.Costs {
				g.Costs = append(g.Costs, &quotav1.Cost{Name: c.Name, Units: c.Units})
			}
			generated.Questions = append(generated.Questions, g)
		}
		read := new(quotav1.DecideRequest)
		if err := proto.Unmarshal(hand.buf, read); err != nil {
			t.Fatal(err)
		}
		for _, q := range read.Questions {
			if q.Units == nil {
				q.Units = proto.Int64(1)
			}
		}
		if !proto.Equal(read, generated) {
			t.Fatalf("generated code reads %v, want %v", read, generated)
		}
		b, err := proto.Marshal(generated)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*Frame{{buf: hand.buf}, {buf: b}} {
			var q Question
			for i := range want {
				if ok, err := f.Question(&q); !ok || err != nil {
					t.Fatalf("question %d of %d: %t, %v", i, len(want), ok, err)
				}
				if q.ID != want[i].ID || q.Units != want[i].Units || q.Timeout != want[i].Timeout || !slices.Equal(q.Attributes, want[i].Attributes) || !slices.Equal(q.Costs, want[i].Costs) {
					t.Fatalf("got %+v, want %+v", q, want[i])
				}
			}
			if ok, err := f.Question(&q); ok || err != nil {
				t.Fatalf("beyond the end: %t, %v", ok, err)
			}
		}
	})
}

func TestAnswersAreTheProtocols(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hand Frame
		var want []Answer
		generated := &quotav1.DecideResponse{Done: rapid.Bool().Draw(t, "done"), Closing: rapid.Bool().Draw(t, "closing")}
		for range rapid.IntRange(0, 20).Draw(t, "answers") {
			a := Answer{
				ID: rapid.Uint64().Draw(t, "id"), Allowed: rapid.Bool().Draw(t, "allowed"), Reason: rapid.Uint8Range(0, 16).Draw(t, "reason"),
				RetryAfter: numbers.Draw(t, "after"), Limit: words.Draw(t, "limit"), Cost: words.Draw(t, "cost"), Quota: numbers.Draw(t, "quota"),
				Window: numbers.Draw(t, "window"), Remaining: numbers.Draw(t, "remaining"), Reset: numbers.Draw(t, "reset"),
			}
			want = append(want, a)
			hand.Answer(&a)
			generated.Answers = append(generated.Answers, &quotav1.Answer{
				Id: a.ID, Allowed: a.Allowed, Reason: quotav1.Answer_Reason(a.Reason + 1), RetryAfterUs: a.RetryAfter, Limit: a.Limit, Cost: a.Cost,
				Quota: a.Quota, WindowUs: a.Window, Remaining: a.Remaining, ResetUs: a.Reset,
			})
		}
		hand.End(generated.Done, generated.Closing)
		read := new(quotav1.DecideResponse)
		if err := proto.Unmarshal(hand.buf, read); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(read, generated) {
			t.Fatalf("generated code reads %v, want %v", read, generated)
		}
		b, err := proto.Marshal(generated)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*Frame{{buf: hand.buf}, {buf: b}} {
			var a Answer
			for i := range want {
				if ok, err := f.Next(&a); !ok || err != nil || a != want[i] {
					t.Fatalf("got %+v, %t, %v, want %+v", a, ok, err, want[i])
				}
			}
			if ok, err := f.Next(&a); ok || err != nil || f.Done != generated.Done || f.Closing != generated.Closing {
				t.Fatalf("at the end: %t, %v, done %t, closing %t", ok, err, f.Done, f.Closing)
			}
		}
	})
}

// What is beyond a bound is an error, and no more than the bound is kept of it.
func TestBounds(t *testing.T) {
	many := make([]limit.Attribute, MaxAttributes+1)
	for i := range many {
		many[i] = limit.Attribute{Name: "n", Value: "v"}
	}
	if Fits(many, nil) || !Fits(many[1:], nil) || Fits([]limit.Attribute{{Name: "n", Value: strings.Repeat("v", maxQuestion)}}, nil) {
		t.Errorf("Fits: %d attributes %t, %d %t", len(many), Fits(many, nil), len(many)-1, Fits(many[1:], nil))
	}
	var f Frame
	f.Ask(&Question{Units: 1, Attributes: many})
	if _, err := f.Question(new(Question)); !errors.Is(err, ErrFrame) {
		t.Errorf("%d attributes: got %v", len(many), err)
	}
	f.Reset()
	n := 0
	for ; !f.Full(); n++ {
		f.Ask(&Question{ID: uint64(n + 1), Units: 1, Attributes: many[1:]})
	}
	if n > MaxQuestions || len(f.buf) > MaxBytes {
		t.Errorf("a full frame has %d questions and %d bytes", n, len(f.buf))
	}
	f.Reset()
	for range MaxQuestions + 1 {
		f.Ask(&Question{ID: 1, Units: 1})
	}
	f.n = 0 // as received
	var err error
	for ok := true; ok && err == nil; {
		ok, err = f.Question(new(Question))
	}
	if !errors.Is(err, ErrFrame) {
		t.Errorf("%d questions: got %v", MaxQuestions+1, err)
	}
	codec := Codec{}
	data, err := codec.Marshal(&Frame{buf: make([]byte, MaxBytes+1)})
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	if err := codec.Unmarshal(data, new(Frame)); !errors.Is(err, ErrFrame) {
		t.Errorf("%d bytes: got %v", MaxBytes+1, err)
	}
}

// No bytes make reading panic, or read what generated code does not take.
func FuzzQuestions(f *testing.F) {
	var frame Frame
	frame.Ask(&Question{ID: 7, Units: 3, Timeout: 5, Attributes: []limit.Attribute{{Name: "tenant", Value: "acme"}}})
	f.Add(frame.buf)
	f.Add([]byte{0x0a, 0x80, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q Question
		in := Frame{buf: b}
		n := 0
		for {
			ok, err := in.Question(&q)
			if err != nil || !ok {
				if err == nil {
					break
				}
				return
			}
			n++
		}
		read := new(quotav1.DecideRequest)
		if err := proto.Unmarshal(b, read); err == nil && len(read.Questions) != n {
			t.Errorf("read %d questions of %d", n, len(read.Questions))
		}
	})
}
