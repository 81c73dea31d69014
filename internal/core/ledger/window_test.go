package ledger

import (
	"fmt"
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	at := func(s string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", s)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	now := at("2026-03-31 23:57")
	w, add := Window{}.Extend(now)
	if got, want := fmt.Sprintf("%s %s %d", stamp(w.From), stamp(w.To), len(add)), "2026-02-01T00:00:00Z 2026-06-01T00:00:00Z 4"; got != want {
		t.Errorf("around March: got %s, want %s", got, want)
	}
	if !w.Covers(now) || w.Covers(at("2026-04-01 00:00")) || w.Covers(at("2026-02-28 00:00")) {
		t.Errorf("covers: %v %v %v, want only now", w.Covers(now), w.Covers(at("2026-04-01 00:00")), w.Covers(at("2026-02-28 00:00")))
	}
	later, add := w.Extend(at("2026-12-05 00:00"))
	if got, want := fmt.Sprintf("%s %s %d", stamp(later.From), stamp(later.To), len(add)), "2026-02-01T00:00:00Z 2027-03-01T00:00:00Z 9"; got != want {
		t.Errorf("a gap is filled: got %s, want %s", got, want)
	}
	earlier, add := w.Extend(at("2025-11-05 00:00"))
	if got, want := fmt.Sprintf("%s %s %d", stamp(earlier.From), stamp(earlier.To), len(add)), "2025-10-01T00:00:00Z 2026-06-01T00:00:00Z 4"; got != want {
		t.Errorf("a clock that stepped back: got %s, want %s", got, want)
	}
	for _, c := range []struct {
		slot string
		ok   bool
	}{
		{"2026-03-31 23:55", true}, {"2026-04-01 00:00", true}, {"2026-04-01 00:05", false},
		{"2026-02-01 00:00", true}, {"2026-01-31 23:55", false}, {"2030-01-01 00:00", false},
	} {
		if err := w.check(at(c.slot).Unix(), now, 5*time.Minute); (err == nil) != c.ok {
			t.Errorf("slot %s at %s: got %v, want ok %v", c.slot, now, err, c.ok)
		}
	}
	for _, c := range []struct{ at, month string }{
		{"2026-03-31 23:59", "2026-03"}, {"2026-04-01 00:00", "2026-04"}, {"1970-01-01 00:00", "2026-02"}, {"2099-01-01 00:00", "2026-05"},
	} {
		if got := w.month(at(c.at).Unix()).Format("2006-01"); got != c.month {
			t.Errorf("month of %s: got %s, want %s", c.at, got, c.month)
		}
	}
}

// A report's bounds, each broken alone.
func TestCheck(t *testing.T) {
	for name, change := range map[string]func(*Report){
		"no agent":             func(r *Report) { r.Agent = "" },
		"an agent with spaces": func(r *Report) { r.Agent = "a b" },
		"a negative epoch":     func(r *Report) { r.Epoch = -1 },
		"no number":            func(r *Report) { r.Seq = 0 },
		"totals fall":          func(r *Report) { r.After = r.Before - 1 },
		"a negative total":     func(r *Report) { r.Before, r.After = -5, 12 },
		"too large a total":    func(r *Report) { r.Before, r.After = MaxTotal-3, MaxTotal+14 },
		"a first from nowhere": func(r *Report) { r.Seq = 1 },
		"through before 1970":  func(r *Report) { r.Through = -1 },
		"through after 9999":   func(r *Report) { r.Through = (maxSlot + 1) * 1000 },
		"rows say otherwise":   func(r *Report) { r.After++ },
		"no rows":              func(r *Report) { r.Payload = nil },
	} {
		r := NewReport("agent", 1, 2, 40, someRows(), 1000, false)
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		change(&r)
		r.Digest = r.Sum()
		if err := r.Check(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	for name, change := range map[string]func(*Report){
		"agent": func(r *Report) { r.Agent += "x" }, "epoch": func(r *Report) { r.Epoch++ }, "seq": func(r *Report) { r.Seq++ },
		"totals": func(r *Report) { r.Before++; r.After++ }, "through": func(r *Report) { r.Through++ },
		"closed": func(r *Report) { r.Closed = true }, "payload": func(r *Report) { r.Payload = EncodeRows(someRows()[:2]) },
	} {
		r := NewReport("agent", 1, 2, 40, someRows(), 1000, false)
		change(&r)
		if r.Sum() == r.Digest {
			t.Errorf("the digest does not cover %s", name)
		}
	}
}

func TestHeldRows(t *testing.T) {
	for _, rows := range [][]int{nil, {0}, {3}, {0, 1, 2}, {5, 700, 65_535}} {
		if got := decodeHeld(encodeHeld(rows)); fmt.Sprint(got) != fmt.Sprint(rows) {
			t.Errorf("got %v, want %v", got, rows)
		}
	}
	p := Pending{Payload: EncodeRows(someRows()), Held: encodeHeld([]int{0, 2})}
	rows, err := p.Rows()
	if err != nil || len(rows) != 1 || rows[0].Attributes != "user=2" {
		t.Errorf("rows that count: got %v, %v, want the second", rows, err)
	}
}
