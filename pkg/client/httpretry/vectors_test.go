package httpretry

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"
)

// vectors reads the cases that the clients of all languages share.
func vectors[C any](t *testing.T, name string) []C {
	t.Helper()
	text, err := os.ReadFile("../../../clients/vectors/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []C }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) == 0 {
		t.Fatalf("%s: %d cases, %v", name, len(file.Cases), err)
	}
	return file.Cases
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

func TestVectorsOfRateLimit(t *testing.T) {
	type item struct {
		Name string
		R    int64
		T    *int64
	}
	for _, c := range vectors[struct {
		Name  string
		Lines []string
		Items []item
	}](t, "ratelimit") {
		got, ok := parseRateLimit(c.Lines)
		if ok != (c.Items != nil) || len(got) != len(c.Items) {
			t.Errorf("%s: got %+v, %v, want %+v", c.Name, got, ok, c.Items)
			continue
		}
		for i, want := range c.Items {
			if g := got[i]; g.name != want.Name || g.r != want.R || g.hasT != (want.T != nil) || g.hasT && g.t != *want.T {
				t.Errorf("%s: got %+v, want %+v", c.Name, g, want)
			}
		}
	}
}

func TestVectorsOfWait(t *testing.T) {
	for _, c := range vectors[struct {
		Name    string
		Now     time.Time
		Headers http.Header
		Wait    *float64
	}](t, "wait") {
		h := http.Header{}
		for name, lines := range c.Headers {
			for _, line := range lines {
				h.Add(name, line)
			}
		}
		got, ok := StatedWait(h, c.Now)
		if ok != (c.Wait != nil) || ok && got != seconds(*c.Wait) {
			t.Errorf("%s: got %v, %v", c.Name, got, ok)
		}
	}
}

func TestVectorsOfRetry(t *testing.T) {
	for _, c := range vectors[struct {
		Name             string
		Repeatable       bool
		Status           int
		Failure          string
		Stated           float64 // null is 0
		Attempt, Retries int
		Base, Longest    float64
		Left             float64
		Want             *struct{ Least, Most float64 }
	}](t, "retry") {
		b := backoff{c.Retries, seconds(c.Base), seconds(c.Longest)}
		again := outcome{c.Status, c.Failure == "connect", c.Failure == "lost"}.mayRepeat(c.Repeatable)
		wait := func(place float64) (time.Duration, bool) {
			return b.wait(c.Attempt, again, seconds(c.Stated), seconds(c.Left), place)
		}
		if c.Want == nil {
			if got, ok := wait(0); ok {
				t.Errorf("%s: again after %v", c.Name, got)
			}
			continue
		}
		least, most := seconds(c.Want.Least), seconds(c.Want.Most)
		if got, ok := wait(0); !ok || got != least {
			t.Errorf("%s: got %v at the least, %v, want %v", c.Name, got, ok, least)
		}
		if got, ok := wait(1); !ok || got != most {
			t.Errorf("%s: got %v at the most, %v, want %v", c.Name, got, ok, most)
		}
		for range 100 {
			if got, ok := wait(rand.Float64()); !ok || got < least || got > most {
				t.Errorf("%s: got %v, %v, want %v to %v", c.Name, got, ok, least, most)
			}
		}
	}
}

func TestVectorsOfHeld(t *testing.T) {
	for _, c := range vectors[struct {
		Name    string
		Most    int
		Longest float64
		Steps   []struct {
			At, Wait, Held float64
			Deny, Ask      string
		}
	}](t, "held") {
		h := held{most: c.Most, longest: seconds(c.Longest)}
		begin := time.Now()
		for i, s := range c.Steps {
			now := begin.Add(seconds(s.At))
			if s.Deny != "" {
				h.deny(s.Deny, seconds(s.Wait), http.StatusTooManyRequests, now)
				continue
			}
			got, status := h.ask(s.Ask, now)
			if got != seconds(s.Held) || (status == http.StatusTooManyRequests) != (got > 0) {
				t.Errorf("%s: step %d: got %v with %d, want %v s", c.Name, i, got, status, s.Held)
			}
		}
	}
}
