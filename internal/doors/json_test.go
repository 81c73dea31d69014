package doors

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// post sends a JSON call, with headers as "Name: value".
func post(h http.Handler, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// jsonDecision is a decision as a caller reads it.
type jsonDecision struct {
	Allowed           bool
	Reason            string
	Status            int
	Detail            string
	Limit             string
	Quota             int64
	WindowSeconds     float64 `json:"window_seconds"`
	Remaining         int64
	ResetSeconds      float64 `json:"reset_seconds"`
	RetryAfterSeconds float64 `json:"retry_after_seconds"`
}

func decisionsOf(t *testing.T, w *httptest.ResponseRecorder) []jsonDecision {
	t.Helper()
	var answer struct{ Decisions []jsonDecision }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	return answer.Decisions
}

// Each request of a batch has its own decision, in the batch's order, and takes its own units.
func TestJSONDecides(t *testing.T) {
	s := readOpenAPI(t)
	door := NewJSON(dial(t), nil, JSONConfig{Unknown: http.StatusUnauthorized}, newMetrics(t))
	look := `{"requests":[{"attributes":{"tenant":"acme"},"units":0}]}`
	if d := decisionsOf(t, post(door, "/v1/decide", look))[0]; !d.Allowed || d.Remaining != 10 {
		t.Errorf("a look: got %+v, want 10 left", d)
	}
	w := post(door, "/v1/decide", `{"requests": [
		{"attributes": {"tenant": "acme"}, "units": 7},
		{"attributes": {"ten\u0061nt": "\u0061cme"}, "units": 4},
		{"units": 3, "attributes": {"tenant": "acme"}},
		{"attributes": {"tenant": "acme"}},
		{"attributes": {"tenant": "acme"}, "units": 11},
		{"attributes": {"tenant": "a b"}},
		{"attributes": {"endpoint": "GET /free"}}
	]}`)
	s.checkAnswer("/v1/decide", w)
	got := decisionsOf(t, w)
	want := []jsonDecision{
		{Allowed: true, Reason: "limit", Status: 200, Limit: "requests"},
		{Reason: "limit", Status: 429, Limit: "requests"},
		{Allowed: true, Reason: "limit", Status: 200, Limit: "requests"},
		{Reason: "limit", Status: 429, Limit: "requests"},
		{Reason: "too-large", Status: 413, Limit: "requests"},
		{Reason: "invalid", Status: 400},
		{Reason: "no-tenant", Status: 400},
	}
	for i, w := range want {
		g := got[i]
		if g.Allowed != w.Allowed || g.Reason != w.Reason || g.Status != w.Status || g.Limit != w.Limit {
			t.Errorf("decision %d: got %+v, want %+v", i, g, w)
		}
		if (g.Limit != "") != (g.Quota == 10 && g.WindowSeconds == 3600) || g.Remaining != 0 && g.Limit == "" {
			t.Errorf("decision %d: its limit is %+v", i, g)
		}
		if (g.Status == 429) != (g.RetryAfterSeconds > 0) {
			t.Errorf("decision %d: come again after %v s", i, g.RetryAfterSeconds)
		}
	}
	if d := decisionsOf(t, post(door, "/v1/decide", `{"requests":[{"attributes":{"tenant":"nobody"}}]}`))[0]; d.Status != 200 && d.Status != http.StatusUnauthorized {
		t.Errorf("an unknown tenant: got %+v", d)
	}
}

// What cannot be read is refused with a sentence that says where, and takes nothing.
func TestJSONRefusesWhatItCannotRead(t *testing.T) {
	s := readOpenAPI(t)
	c := &counting{}
	door := NewJSON(c, nil, JSONConfig{}, newMetrics(t))
	one := func(inner string) string { return `{"requests":[{"attributes":{"tenant":"acme"}` + inner + `}]}` }
	long := strings.Repeat(`{"attributes":{}},`, maxRequests) + `{"attributes":{}}`
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf(`"a%d":"x"`, i))
	}
	for _, test := range []struct {
		body   string
		status int
		says   string
	}{
		{``, 400, "it ends where an object"},
		{`[]`, 400, "at byte 0"},
		{`{}`, 400, "no requests"},
		{`{"requests":[]}`, 400, "1 to 1024"},
		{`{"requests":[` + long + `]}`, 400, "1 to 1024"},
		{`{"requests":[{}]}`, 400, "requests[0]: the body cannot be read: it has no attributes"},
		{`{"requests":[{"attributes":{"a":"b"}},{"attributes":{"a":1}}]}`, 400, `requests[1]: attributes."a"`},
		{`{"requests":[{"attributes":{` + strings.Join(many, ",") + `}}]}`, 400, "there may be 32"},
		{`{"requests":[{"attributes":{"a":"b","a":"c"}}]}`, 400, "twice"},
		{one(`,"units":1,"units":2`), 400, "twice"},
		{one(`,"unit":1`), 400, `no member "unit"`},
		{one(`,"units":-1`), 400, "write 0 to 1000000000"},
		{one(`,"units":1000000001`), 400, "write 0 to 1000000000"},
		{one(`,"units":9223372036854775808`), 400, "write 0 to 1000000000"},
		{one(`,"units":1.5`), 400, "no integer"},
		{one(`,"units":1e3`), 400, "no integer"},
		{one(`,"units":01`), 400, "no integer"},
		{one(`,"units":NaN`), 400, "an integer should be"},
		{one(`,"units":null`), 400, "an integer should be"},
		{one(`,"units":"1"`), 400, "an integer should be"},
		{one(``) + `x`, 400, "the end should be"},
		{`{"requests":[{"attributes":{"tenant":"acme"}}],}`, 400, "another value"},
		{`{"requests":[{"attributes":{"tenant":"acme"}},]}`, 400, "another value"},
		{`{"requests":[{"attributes":{"tenant":"acme"}}],"timeout_ms":0}`, 400, "timeout_ms"},
		{"{\"requests\":[{\"attributes\":{\"tenant\":\"\xff\"}}]}", 400, "UTF-8"},
		{"{\"requests\":[{\"attributes\":{\"tenant\":\"\n\"}}]}", 400, "control"},
		{`{"requests":[{"attributes":{"tenant":"\x"}}]}`, 400, "a string should be"},
		{one(strings.Repeat(" ", maxBody)), 413, "262144"},
	} {
		w := post(door, "/v1/decide", test.body)
		short := test.body[:min(len(test.body), 100)]
		if w.Code != test.status || !strings.Contains(problemIn(t, w).Detail, test.says) {
			t.Errorf("%s: got %d %s, want %d and %q", short, w.Code, w.Body, test.status, test.says)
		}
		s.checkAnswer("/v1/decide", w)
	}
	if n := c.n.Load(); n != 0 {
		t.Errorf("%d requests were decided", n)
	}
	if got := door.held.Load(); got != 0 {
		t.Errorf("%d bytes are held after all calls", got)
	}
	if w := askOf(door, "GET /v1/decide"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", w.Code, w.Header())
	}
	if w := post(door, "/v1/decide", one(""), "Content-Type: text/plain"); w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %d", w.Code)
	}
	if w := post(door, "/v1/decide", one(""), "Content-Type: application/json; charset=utf-8"); w.Code != http.StatusOK {
		t.Errorf("with a charset: %d", w.Code)
	}
	if w := post(door, "/v1/nothing", one("")); w.Code != http.StatusNotFound {
		t.Errorf("another path: %d", w.Code)
	}
}

type problemBody struct {
	Type, Title, Detail string
	Status              int
}

func problemIn(t *testing.T, w *httptest.ResponseRecorder) (p problemBody) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code {
		t.Errorf("%d %s: %v", w.Code, w.Body, err)
	}
	return p
}

// counting allows and counts requests; it waits for gate unless that is nil.
type counting struct {
	n    atomic.Int64
	gate chan struct{}
}

func (c *counting) Decide(ctx context.Context, q client.Request) client.Decision {
	c.n.Add(q.Units)
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return client.Decision{Reason: client.ReasonDeadline}
		}
	}
	return client.Decided(true, client.ReasonLimit, 0, client.Details{Limit: "requests", Quota: 10, Window: time.Minute, Remaining: c.n.Load()})
}

// A call of the same key is answered as before and spends once; with another body it is refused, and while the first is under
// way too.
func TestJSONIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{}
		door := NewJSON(c, nil, JSONConfig{}, newMetrics(t))
		const body = `{"requests":[{"attributes":{"tenant":"acme"}}]}`
		ask := func(key, body string) *httptest.ResponseRecorder {
			return post(door, "/v1/decide", body, "Idempotency-Key: "+key)
		}
		first := ask("k", body)
		if again := ask("k", body); again.Code != 200 || again.Body.String() != first.Body.String() || c.n.Load() != 1 {
			t.Errorf("again: %d %s after %s; %d decided", again.Code, again.Body, first.Body, c.n.Load())
		}
		if w := ask("k", body+" "); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("another body: %d %s", w.Code, w.Body)
		}
		if w := ask("other", body); w.Code != 200 || c.n.Load() != 2 {
			t.Errorf("another key: %d, %d decided", w.Code, c.n.Load())
		}
		for _, key := range []string{"", "a b", "é", strings.Repeat("k", 129)} {
			if w := ask(key, body); w.Code != http.StatusBadRequest {
				t.Errorf("key %q: %d", key, w.Code)
			}
		}
		if w := ask("bad", "{"); w.Code != http.StatusBadRequest {
			t.Errorf("a bad body: %d", w.Code)
		}
		if w := ask("bad", body); w.Code != 200 || c.n.Load() != 3 {
			t.Errorf("the key of a body that was refused: %d %s", w.Code, w.Body)
		}
		time.Sleep(keptFor)
		if w := ask("k", body+" "); w.Code != 200 || c.n.Load() != 4 {
			t.Errorf("after 10 minutes: %d", w.Code)
		}

		c.gate = make(chan struct{})
		slow := make(chan *httptest.ResponseRecorder)
		go func() { slow <- ask("slow", body) }()
		synctest.Wait()
		if w := ask("slow", body); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
			t.Errorf("while it is under way: %d %s", w.Code, w.Body)
		}
		close(c.gate)
		first = <-slow
		if w := ask("slow", body); w.Code != 200 || w.Body.String() != first.Body.String() {
			t.Errorf("after it was under way: %d %s, want %s", w.Code, w.Body, first.Body)
		}
	})
}

// A caller whose connection broke finds the answer under its key, and not that its request was broken off.
func TestJSONKeysOutliveConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{gate: make(chan struct{})}
		door := NewJSON(c, nil, JSONConfig{}, newMetrics(t))
		const body = `{"requests":[{"attributes":{"tenant":"acme"}}]}`
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/decide", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		go door.ServeHTTP(httptest.NewRecorder(), r)
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(c.gate)
		synctest.Wait()
		if d := decisionsOf(t, post(door, "/v1/decide", body, "Idempotency-Key: k"))[0]; !d.Allowed || c.n.Load() != 1 {
			t.Errorf("got %+v, %d decided", d, c.n.Load())
		}
	})
}

// One tenant's answers push out its own; all together stay within the bound.
func TestKeptAnswersAreBounded(t *testing.T) {
	k := newKept()
	keep := func(key, tenant string, size int) {
		t.Helper()
		_, a, p := k.begin(key, "/", "")
		if p != nil {
			t.Fatal(p)
		}
		if a != nil {
			k.end(a, tenant, make([]byte, size))
		}
	}
	known := func(key string) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.byKey[key] != nil
	}
	keep("quiet", "quiet", 100)
	for i := range 3 * maxOfTenant {
		keep(fmt.Sprint("a", i), "loud", 10)
	}
	if !known("quiet") || known("a0") || !known(fmt.Sprint("a", 3*maxOfTenant-1)) {
		t.Error("a loud tenant pushes out another's answer, or its own newest")
	}
	for i := range 40 {
		keep(fmt.Sprint("b", i), "large", 200<<10)
	}
	if !known("quiet") || known("b0") {
		t.Error("large answers push out another tenant's")
	}
	for i := range 20 {
		for n := range 20 {
			keep(fmt.Sprint("c", i, "-", n), fmt.Sprint("t", i), 100<<10)
		}
	}
	if known("quiet") || k.bytes > maxKeptBytes || len(k.byKey) > maxKept || len(k.tenants) > 20 {
		t.Errorf("%d answers of %d tenants, %d bytes", len(k.byKey), len(k.tenants), k.bytes)
	}
	sum := 0
	for _, a := range k.byKey {
		sum += a.size()
	}
	if sum != k.bytes {
		t.Errorf("%d bytes are counted of %d", k.bytes, sum)
	}
}

// A body that comes slowly, or an answer that nobody reads, holds memory within the bound; beyond it a call is told to come again.
func TestJSONMemoryIsBounded(t *testing.T) {
	c := &counting{}
	door := NewJSON(c, nil, JSONConfig{}, newMetrics(t))
	body := `{"requests":[{"attributes":{"tenant":"` + strings.Repeat("x", 8<<10) + `"}}]}`
	door.held.Store(maxHeld - 4<<10)
	if w := post(door, "/v1/decide", body); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || c.n.Load() != 0 {
		t.Errorf("beyond the bound: %d %s", w.Code, w.Body)
	}
	if w := post(door, "/v1/decide", `{"requests":[{"attributes":{"tenant":"acme"}}]}`); w.Code != http.StatusOK {
		t.Errorf("a small call beside large ones: %d %s", w.Code, w.Body)
	}
	if got := door.held.Load(); got != maxHeld-4<<10 {
		t.Errorf("%d bytes are held, want as many as before", got)
	}
}

// A request that waits for the server holds up no other of its batch: all wait at once.
func TestJSONBatchWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stop := startNode(t)
		defer stop()
		n.client.Allow(t.Context(), of("acme"))
		door := NewJSON(n.client, nil, JSONConfig{}, n.metrics)
		start := time.Now()
		w := post(door, "/v1/decide", `{"requests":[`+strings.TrimSuffix(strings.Repeat(`{"attributes":{"tenant":"slow"}},{"attributes":{"tenant":"acme"}},`, 20), ",")+`]}`)
		for i, d := range decisionsOf(t, w) {
			if !d.Allowed {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if took := time.Since(start); took > 5*slowness {
			t.Errorf("20 that wait %s each took %s", slowness, took)
		}
		w = post(door, "/v1/decide", `{"requests":[{"attributes":{"tenant":"slow","user":"new"}}],"timeout_ms":1}`)
		if got := w.Code; got != 200 {
			t.Errorf("got %d", got)
		}
	})
}

// Calls are counted by route and result, and decisions by door and result.
func TestJSONMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	n, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	door := NewJSON(&counting{}, nil, JSONConfig{}, n)
	const body = `{"requests":[{"attributes":{"tenant":"acme"}},{"attributes":{"tenant":"acme"}}]}`
	post(door, "/v1/decide", body, "Idempotency-Key: k")
	post(door, "/v1/decide", body, "Idempotency-Key: k")
	post(door, "/v1/decide", "")
	for result, want := range map[string]float64{resultOK: 1, resultReplayed: 1, resultBadRequest: 1} {
		if got := counted(t, registry, "route=/v1/decide", "result="+result); got != want {
			t.Errorf("calls %s: %v, want %v", result, got, want)
		}
	}
	if got := counted(t, registry, "door=json", "result=ok"); got != 2 {
		t.Errorf("%v decisions, want 2", got)
	}
}

// counted is the value of the counter with all of the labels; 0 for none.
func counted(t *testing.T, registry *prometheus.Registry, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := 0
			for _, l := range m.GetLabel() {
				if slices.Contains(labels, l.GetName()+"="+l.GetValue()) {
					n++
				}
			}
			if n == len(labels) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// A decision says what its limit's units are of, and takes no more bytes than calls hold for it.
func TestADecisionInJSON(t *testing.T) {
	long := strings.Repeat("n", limit.MaxNameLen)
	const most = 1<<63 - 1
	for reason := client.Reason(0); reason.String() != "reason"; reason++ {
		d := client.Decided(false, reason, most, client.Details{Limit: long, Cost: long, Quota: most, Window: most, Remaining: most, Reset: most})
		if text := string(appendDecision(nil, d, 0)); len(text) > mostDecision || !strings.Contains(text, `"cost":"`+long+`"`) {
			t.Errorf("%s takes %d bytes, and may take %d: %s", reason, len(text), mostDecision, text)
		}
	}
	d := client.Decided(true, client.ReasonLimit, 0, client.Details{Limit: "requests", Quota: 1})
	if text := string(appendDecision(nil, d, 0)); strings.Contains(text, "cost") {
		t.Errorf("of requests: %s", text)
	}
}
