package doors

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// What the strict reader takes encoding/json takes too, and both read the same.
func FuzzReadDecide(f *testing.F) {
	for _, s := range []string{
		`{"requests":[{"attributes":{"tenant":"acme"},"units":3}],"timeout_ms":20}`,
		` { "requests" : [ { "units" : 0 , "attributes" : { } } , {"attributes":{"a\u0062\ud800":"\\\"\/\n"}} ] } `,
		`{"requests":[{"attributes":{"a":"b","a":"c"}}]}`, `{"requests":[{"attributes":{"a":"\`, `{"requests":[{"attributes":{},"units":-0}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := readDecide(text)
		if err != nil {
			return
		}
		var want struct {
			Requests []struct {
				Attributes map[string]string `json:"attributes"`
				Units      *int64            `json:"units"`
			} `json:"requests"`
			Timeout int64 `json:"timeout_ms"`
		}
		d := json.NewDecoder(bytes.NewReader([]byte(text)))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		if len(got.requests) != len(want.Requests) || got.timeout.Milliseconds() != want.Timeout || len(got.requests) > maxRequests {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for i, w := range want.Requests {
			g := got.requests[i]
			units := int64(1)
			if w.Units != nil {
				units = *w.Units
			}
			if g.Units != units || len(g.Attributes) != len(w.Attributes) {
				t.Fatalf("request %d: got %+v, want %+v", i, g, w)
			}
			for _, a := range g.Attributes {
				if v, ok := w.Attributes[a.Name]; !ok || v != a.Value {
					t.Fatalf("request %d: got %+v, want %+v", i, g, w)
				}
			}
		}
	})
}

// Whatever is sent about reservations is read or refused, within bounds.
func FuzzReadReservations(f *testing.F) {
	for _, s := range []string{
		`{"attributes":{"tenant":"acme"},"units":1,"costs":{"tokens_in":900},"expires_seconds":60,"whole": true,"timeout_ms":5}`,
		`{"id":"AQ","units":0,"costs":{"tokens_out":500},"used":{"units":1,"costs":{"tokens_out":480}}}`, `{"id":"AQ","used":{"used":{}}}`, `{"id":""}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if q, err := readReserve(text); err == nil && (len(q.request.Attributes) > 32 || len(q.request.Costs) > maxCosts || q.request.Expires < time.Second) {
			t.Fatalf("%+v", q)
		}
		if q, err := readExtend(text); err == nil && (len(q.message.GetId()) > maxID || q.message.GetUnits() < 0 || len(q.message.GetCosts()) > maxCosts) {
			t.Fatalf("%+v", q)
		}
		if m, err := readCommit(text); err == nil && !json.Valid([]byte(text)) {
			t.Fatalf("%v is read of no JSON", m)
		}
		if m, err := readCancel(text); err == nil && m.GetTotals().GetUnits() != 0 {
			t.Fatalf("%v", m)
		}
	})
}
