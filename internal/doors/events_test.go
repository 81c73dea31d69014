package doors

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

// sink keeps what it is given to book.
type sink struct {
	events []client.Event
	err    error
}

func (s *sink) BookEvents(_ context.Context, events ...client.Event) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.events = append(s.events, events...)
	return len(events), nil
}

func defaultEventMap(t testing.TB) EventMap {
	t.Helper()
	m, err := ParseEventMap(DefaultEventAttributes(), DefaultEventCosts())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func send(h http.Handler, media, body string) *httptest.ResponseRecorder {
	return post(h, EventsPath, body, "Content-Type: "+media)
}

// Every example of openapi.json is of its schema, is answered 200 once and again, and the answer is of its schema.
func TestEventsExamples(t *testing.T) {
	s := readOpenAPI(t)
	addr := startServer(t, document).GRPCAddr()
	c := dialAt(t, addr, client.WithFirstWait(30*time.Second), client.WithMaxWait(30*time.Second), client.WithJournal(t.TempDir()))
	door := NewEvents(c, defaultEventMap(t), newMetrics(t))
	content := s.paths[EventsPath].Post.RequestBody.Content
	if len(content) != 3 {
		t.Errorf("%d types are described", len(content))
	}
	for media, of := range content {
		at := "/paths/~1v1~1events/post/requestBody/content/" + strings.ReplaceAll(media, "/", "~1") + "/schema"
		for name, e := range of.Examples {
			s.check(media+" "+name, at, e.Value)
			for range 2 {
				w := send(door, media, string(e.Value))
				if w.Code != http.StatusOK {
					t.Errorf("%s %s: got %d %s", media, name, w.Code, w.Body)
				}
				s.checkAnswer(EventsPath, w)
			}
		}
	}
	if got, want := send(door, typeCloudEvent, `{"specversion":"1.0","id":"1","source":"/gateways/1","type":"usage","subject":"acme"}`).Body.String(), `{"booked":0,"known":1}`+"\n"; got != want {
		t.Errorf("again: %s, want %s", got, want)
	}
	w := send(door, typeBatch, `[{"specversion":"1.0","id":"a","source":"s","type":"t","subject":"acme"},{"specversion":"1.0","id":"b","source":"s","type":"t","subject":"a b"}]`)
	if s.checkAnswer(EventsPath, w); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "events[1]: the event cannot be booked: the tenant") {
		t.Errorf("a tenant of no valid name: %d %s", w.Code, w.Body)
	}
	bare := NewEvents(dialAt(t, addr, client.WithFirstWait(30*time.Second)), defaultEventMap(t), newMetrics(t))
	w = send(bare, typeUsageEvent, `{"event_id":"1","attributes":{"tenant":"acme"}}`)
	if s.checkAnswer(EventsPath, w); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "--journal") || w.Header().Get("Retry-After") == "" {
		t.Errorf("without a journal: %d %s", w.Code, w.Body)
	}
}

// Members of the event become attributes and costs by the mapping.
func TestEventsAreMapped(t *testing.T) {
	m, err := ParseEventMap([]string{"tenant=attributes.tenant,subject", "model=model_response,model_requested", "edge=value:true", "zone=attributes.zone.name", "code=status_code"},
		[]string{"requests=data.n,value:2", "tokens_in=gen_ai.usage.input, data.gen_ai.usage.input", "tokens_out=output_tokens"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ media, body, want string }{
		{typeUsageEvent, `{"event_id":"1","model_requested":"m","model_response":"","status_code":200,"attributes":{"tenant":"acme","zone.name":"z"},"output_tokens":7,"gen_ai.usage.input":null}`,
			`{  1 {2 [{tokens_out 7}] [{tenant acme} {model m} {edge true} {zone z} {code 200}] 0s false}}`},
		{typeCloudEvent, `{"specversion":"1.0","type":"t","source":"s","id":"i","subject":"a/b","data":{"n":0,"gen_ai":{"usage.input":5}}}`,
			`{ s i {0 [{tokens_in 5}] [{tenant a/b} {edge true}] 0s false}}`},
		{typeBatch + "; charset=utf-8", `[{"specversion":"1.0","type":"t","source":"s","id":"é","subject":"a","output_tokens":1000000000}]`,
			`{ s é {2 [{tokens_out 1000000000}] [{tenant a} {edge true}] 0s false}}`},
	} {
		s := new(sink)
		if w := send(NewEvents(s, m, newMetrics(t)), test.media, test.body); w.Code != http.StatusOK || len(s.events) != 1 {
			t.Errorf("%s: %d %s", test.body, w.Code, w.Body)
			continue
		}
		e := s.events[0]
		if got := fmt.Sprint(struct {
			_          string
			Source, ID string
			client.Request
		}{Source: e.Source, ID: e.ID, Request: e.Request}); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.body, got, test.want)
		}
	}
}

// What cannot be read is refused with a sentence that says where, and books nothing.
func TestEventsRefusesWhatItCannotRead(t *testing.T) {
	schemas := readOpenAPI(t)
	s := new(sink)
	door := NewEvents(s, defaultEventMap(t), newMetrics(t))
	usage := func(inner string) string { return `{"event_id":"1","attributes":{"tenant":"acme"}` + inner + `}` }
	cloud := func(inner string) string { return `{"specversion":"1.0","type":"t","subject":"a"` + inner + `}` }
	whole := cloud(`,"source":"s","id":"i"`)
	many := "[" + strings.Repeat(whole+",", maxEvents) + whole + "]"
	for _, test := range []struct {
		media, body string
		status      int
		says        string
	}{
		{typeUsageEvent, ``, 400, "too early"}, {typeUsageEvent, `{`, 400, "too early"}, {typeUsageEvent, `[]`, 400, "cannot be read"},
		{typeUsageEvent, `null`, 400, "an object"}, {typeUsageEvent, usage(``) + `{}`, 400, "follows"}, {typeUsageEvent, "\"\xff\"", 400, "UTF-8"},
		{typeUsageEvent, `{"attributes":{"tenant":"acme"}}`, 400, "event_id"}, {typeUsageEvent, `{"event_id":7}`, 400, "event_id"},
		{typeUsageEvent, `{"event_id":"` + strings.Repeat("x", 257) + `"}`, 400, "1 to 256 bytes"},
		{typeUsageEvent, `{"event_id":"1"}`, 400, "no tenant at attributes.tenant"}, {typeUsageEvent, `{"event_id":"1","attributes":{"tenant":""}}`, 400, "no tenant"},
		{typeUsageEvent, `{"event_id":"1","attributes":{"tenant":["a"]}}`, 400, "no attribute"},
		{typeUsageEvent, usage(`,"input_tokens":-1`), 400, `"input_tokens" is "-1"; write an integer from 0 to 1000000000`},
		{typeUsageEvent, usage(`,"input_tokens":1.5`), 400, "integer"}, {typeUsageEvent, usage(`,"input_tokens":1000000001`), 400, "integer"},
		{typeUsageEvent, usage(`,"input_tokens":9223372036854775808`), 400, "integer"}, {typeUsageEvent, usage(`,"input_tokens":1e3`), 400, "integer"},
		{typeUsageEvent, usage(`,"input_tokens":"7"`), 400, "integer"}, {typeUsageEvent, usage(`,"input_tokens":{}`), 400, "integer"},
		{typeUsageEvent, usage(`,"input_tokens":NaN`), 400, "cannot be read"},
		{typeUsageEvent, usage(`,"input_tokens":7,"input_tokens":8`), 400, `"input_tokens" is there twice`},
		{typeUsageEvent, usage(`,"x":1e999,"event_id":"2"`), 400, `"event_id" is there twice`},
		{typeUsageEvent, usage(`,"x":[{"a":{"a":1},"b":2},{"a":1,"b":[],"\u0061":2}]`), 400, `"a" is there twice`},
		{typeBatch, `[` + whole + `,` + cloud(`,"source":"s","id":"i","id":"j"`) + `]`, 400, `events[1]: the body cannot be read: \"id\" is there twice`},
		{typeCloudEvent, `{"specversion":"0.3"}`, 400, "specversion"}, {typeCloudEvent, `{"specversion":"1.0"}`, 400, "no type"},
		{typeCloudEvent, cloud(`,"id":"i"`), 400, "source"}, {typeCloudEvent, cloud(`,"source":"s"`), 400, `"id"`}, {typeCloudEvent, cloud(`,"source":"s","id":""`), 400, `"id"`},
		{typeBatch, whole, 400, "cannot be read"}, {typeBatch, `null`, 400, "0 to 256"}, {typeBatch, many, 400, "0 to 256"},
		{typeBatch, `[` + whole + `,7]`, 400, "events[1]: "}, {typeBatch, `[` + whole + `,` + cloud(`,"source":"s"`) + `]`, 400, `events[1]: the event cannot be booked: \"id\"`},
		{typeUsageEvent, usage(`,"x":"` + strings.Repeat("x", maxBody) + `"`), 413, "262144"},
		{"text/plain", usage(``), 415, "application/cloudevents-batch+json"}, {"", usage(``), 415, "not"},
	} {
		w := send(door, test.media, test.body)
		said := test.body[:min(len(test.body), 80)]
		if schemas.checkAnswer(EventsPath, w); w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
			var p struct{ Detail string }
			_ = json.Unmarshal(w.Body.Bytes(), &p)
			if w.Code != test.status || !strings.Contains(p.Detail, test.says) {
				t.Errorf("%s %s: got %d %s, want %d and %q", test.media, said, w.Code, w.Body, test.status, test.says)
			}
		}
	}
	w := askOf(door, "GET /v1/events")
	if schemas.checkAnswer(EventsPath, w); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
	if len(s.events) != 0 || door.held.Load() != 0 {
		t.Errorf("%d events are booked, %d bytes held", len(s.events), door.held.Load())
	}
	for err, want := range map[error]int{
		&client.EventError{Index: 0, Err: &client.NotBookedError{Reason: client.ReasonUnknown}}: 503, &client.NotBookedError{Reason: client.ReasonClosed}: 503,
		&client.EventError{Index: 0, Err: &client.NotBookedError{Reason: client.ReasonNoPlan}}:  403,
		&client.EventError{Index: 0, Err: &client.NotBookedError{Reason: client.ReasonInvalid}}: 400, client.ErrUnjournalled: 503,
	} {
		s.err = err
		if w := send(door, typeUsageEvent, usage(``)); w.Code != want || (want == 503) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%v: got %d %s", err, w.Code, w.Body)
		}
	}
}

// Calls hold no more than they may: those beyond are answered 503, and nothing is booked.
func TestEventsBoundsWhatCallsHold(t *testing.T) {
	s := new(sink)
	door := NewEvents(s, defaultEventMap(t), newMetrics(t))
	door.held.Store(maxHeld)
	if w := send(door, typeUsageEvent, `{"event_id":"1","attributes":{"tenant":"acme"}}`); w.Code != http.StatusServiceUnavailable || len(s.events) != 0 || door.held.Load() != maxHeld {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// Every fault of a mapping is reported.
func TestEventMapFaults(t *testing.T) {
	good := []string{"tenant=subject"}
	for _, test := range []struct {
		attributes, costs []string
		says              string
	}{
		{nil, nil, "no attribute is the tenant"}, {[]string{"tenant"}, nil, "write NAME=SOURCE"}, {[]string{"a b=c"}, nil, "write NAME=SOURCE"},
		{[]string{"tenant=a", "tenant=b"}, nil, "twice"}, {[]string{"tenant=a,"}, nil, "empty"}, {[]string{"tenant=value:"}, nil, "empty"},
		{good, []string{"tokens=value:x"}, "write 0 to"}, {good, []string{"tokens=value:-1"}, "write 0 to"}, {good, []string{"tokens=value:1000000001"}, "write 0 to"},
		{slices.Repeat(good, 33), nil, "at most 32"},
	} {
		if _, err := ParseEventMap(test.attributes, test.costs); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q %q: %v, want %q", test.attributes, test.costs, err, test.says)
		}
	}
}

// Whatever the body is, an event that is read has a name and a tenant, and costs in range.
func FuzzReadEvents(f *testing.F) {
	f.Add(byte(0), []byte(`{"event_id":"1","attributes":{"tenant":"acme"},"input_tokens":7}`))
	f.Add(byte(1), []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","data":{"model":"m","data":{"x":[[]]}}}`))
	f.Add(byte(2), []byte(`[{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","data":{"input_tokens":1e9}},null]`))
	m := defaultEventMap(f)
	media := []string{typeUsageEvent, typeCloudEvent, typeBatch}
	f.Fuzz(func(t *testing.T, of byte, body []byte) {
		events, err := readEvents(media[int(of)%len(media)], body, &m)
		if err != nil && events != nil {
			t.Errorf("%d events, and %v", len(events), err)
		}
		if len(events) > maxEvents {
			t.Errorf("%d events", len(events))
		}
		for _, e := range events {
			if e.ID == "" || len(e.ID) > client.MaxEventName || len(e.Source) > client.MaxEventName || tenantOf(e.Request) == "(none)" || tenantOf(e.Request) == "" {
				t.Errorf("%+v", e)
			}
			for _, c := range append(e.Costs, client.Cost{Units: e.Units}) {
				if c.Units < 0 || c.Units > 1_000_000_000 {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}
