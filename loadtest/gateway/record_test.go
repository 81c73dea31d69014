package gateway

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestRecordSurvivesBeingWritten(t *testing.T) {
	r := NewRecord()
	r.Admitted[Bin{17, "a"}] = 3
	r.Admitted[Bin{17, "b"}] = 4
	r.Admitted[Bin{18, "a"}] = 5
	r.Denied["a"] = 6
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.Admitted, r.Admitted) || !maps.Equal(got.Denied, r.Denied) {
		t.Errorf("got %v %v, want %v %v", got.Admitted, got.Denied, r.Admitted, r.Denied)
	}
	got.Add(r)
	if want := map[string]int64{"a": 16, "b": 8}; !maps.Equal(got.Totals(), want) {
		t.Errorf("totals of it twice: got %v, want %v", got.Totals(), want)
	}
	// A gateway that died while writing must not pass for one that admitted less.
	for _, broken := range []string{
		"", "end 1\n", text[:strings.Index(text, "end")], strings.Replace(text, "admitted 17 b 4\n", "", 1),
		text + "admitted 19 a 1\n", "admitted x a 1\nend 1\n", "admitted 1 a x\nend 1\n", "denied a x\nend 1\n", "hello\nend 1\n",
	} {
		if _, err := Read(strings.NewReader(broken)); !errors.Is(err, ErrRecord) {
			t.Errorf("%q: got error %v, want %v", broken, err, ErrRecord)
		}
	}
}

func TestPeakFindsTheFullestWindow(t *testing.T) {
	r := NewRecord()
	for at := int64(100); at < 200; at++ { // ten a second for ten seconds
		r.Admitted[Bin{at, "even"}] = 1
		r.Admitted[Bin{at, "bursty"}] = 1
	}
	r.Admitted[Bin{155, "bursty"}] = 8
	r.Admitted[Bin{160, "bursty"}] = 8
	a := Allowance{Rate: 10, Burst: 5, Epsilon: 0.05}
	for _, test := range []struct {
		tenant string
		window time.Duration
		want   int64
		over   bool
	}{
		{"even", time.Second, 10, false},
		{"even", 2 * time.Second, 20, false},
		{"even", 20 * time.Second, 100, false}, // longer than the run
		{"bursty", time.Second, 24, true},
		{"bursty", 2 * time.Second, 34, true},
		{"bursty", 10 * time.Second, 114, true},
		{"nobody", time.Second, 0, false},
	} {
		p := r.Peak(test.tenant, a, test.window)
		if p.Admitted != test.want || p.Over() != test.over {
			t.Errorf("%s in %v: got %v, over %v; want %d, over %v", test.tenant, test.window, p, p.Over(), test.want, test.over)
		}
	}
	p := r.Peak("bursty", a, time.Second)
	if at := At(p.Start); at > 155 || at+10 <= 160 {
		t.Errorf("the fullest second starts at bin %d, want one with bins 155 and 160 in it", at)
	}
}
