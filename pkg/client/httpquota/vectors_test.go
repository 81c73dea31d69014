package httpquota_test

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
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

func reasonOf(t *testing.T, word string) client.Reason {
	t.Helper()
	for r := client.ReasonLimit; r <= client.ReasonTooLarge; r++ {
		if r.String() == word {
			return r
		}
	}
	t.Fatalf("no reason is %q", word)
	return 0
}

func TestVectorsOfAnswers(t *testing.T) {
	seconds := func(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
	for _, c := range vectors[struct {
		Name     string
		Decision struct {
			Allowed    bool
			Reason     string
			Status     int
			Limit      string
			Cost       string
			Quota      int64
			Window     float64 `json:"window_seconds"`
			Remaining  int64
			Reset      float64 `json:"reset_seconds"`
			RetryAfter float64 `json:"retry_after_seconds"`
		}
		Headers map[string]string
		Problem map[string]any
	}](t, "answers") {
		d := client.Decided(c.Decision.Allowed, reasonOf(t, c.Decision.Reason), seconds(c.Decision.RetryAfter), client.Details{
			Limit: c.Decision.Limit, Cost: c.Decision.Cost, Quota: c.Decision.Quota, Window: seconds(c.Decision.Window),
			Remaining: c.Decision.Remaining, Reset: seconds(c.Decision.Reset),
		})
		got := map[string]string{}
		httpquota.Headers(d, func(name, value string) { got[name] = value })
		if !maps.Equal(got, c.Headers) {
			t.Errorf("%s: got headers %q, want %q", c.Name, got, c.Headers)
		}
		if status := httpquota.Status(d); status != c.Decision.Status {
			t.Errorf("%s: got status %d, want %d", c.Name, status, c.Decision.Status)
		}
		if c.Problem == nil {
			continue
		}
		w := httptest.NewRecorder()
		httpquota.WriteDenial(w, d, c.Decision.Status)
		var problem map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatal(err)
		}
		delete(problem, "title")
		delete(problem, "detail") // the agent's answer carries it to the clients
		if !reflect.DeepEqual(problem, c.Problem) {
			t.Errorf("%s: got problem %v, want %v", c.Name, problem, c.Problem)
		}
	}
}

func TestVectorsOfPaths(t *testing.T) {
	for _, c := range vectors[struct{ Path, Clean string }](t, "paths") {
		r := httptest.NewRequest(http.MethodGet, "http://shop.example/", nil)
		r.URL.Path = c.Path
		for _, a := range (httpquota.Extract{}).Attributes(r) {
			if a.Name == "endpoint" && a.Value != "GET "+c.Clean {
				t.Errorf("%q: got %q, want that of %q", c.Path, a.Value, c.Clean)
			}
		}
	}
}
