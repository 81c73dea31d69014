package doors

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/pkg/client"
)

func newCheck(t *testing.T, c Client, config CheckConfig) *Check {
	t.Helper()
	a, err := ParseAttributes(DefaultAttributes())
	if err != nil {
		t.Fatal(err)
	}
	config.Attributes = a
	return NewCheck(c, config, newMetrics(t))
}

// ask sends one check: "GET /check", with headers as "Name: value".
func askOf(h http.Handler, request string, headers ...string) *httptest.ResponseRecorder {
	method, url, _ := strings.Cut(request, " ")
	r := httptest.NewRequest(method, url, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestCheckAllowsAndDenies(t *testing.T) {
	h := newCheck(t, dial(t), CheckConfig{})
	for i := range 10 {
		w := askOf(h, "GET /check", "X-Tenant: acme")
		if w.Code != http.StatusOK {
			t.Fatalf("check %d of a burst of 10: got %d %s", i+1, w.Code, w.Body)
		}
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit"} {
			if w.Header().Get(name) == "" {
				t.Errorf("check %d: no %s in %v", i+1, name, w.Header())
			}
		}
		if got := w.Header().Get("Retry-After"); got != "" {
			t.Errorf("check %d was allowed with Retry-After: %s", i+1, got)
		}
	}
	w := askOf(h, "GET /check", "X-Tenant: acme")
	if w.Code != http.StatusTooManyRequests {
		t.Fatalf("the 11th of a burst of 10: got %d, want 429", w.Code)
	}
	if got := w.Header().Get("Retry-After"); got == "" {
		t.Errorf("a denial without Retry-After: %v", w.Header())
	}
	if got, want := w.Header().Get("RateLimit-Policy"), `"requests";q=10;w=3600`; !strings.Contains(got, want) {
		t.Errorf("RateLimit-Policy: got %s, want %s", got, want)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: got %s", got)
	}
	var problem map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if v, _ := problem["violated-policies"].([]any); len(v) != 1 || v[0] != "requests" {
		t.Errorf("violated-policies: got %v in %s", problem["violated-policies"], w.Body)
	}
	// nginx passes on 401 and 403 only.
	if w := askOf(h, "GET /check?denied=403", "X-Tenant: acme"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `"status":403`) {
		t.Errorf("denied=403: got %d %s", w.Code, w.Body)
	}
	// Another tenant has a bucket of its own.
	if w := askOf(h, "GET /check?denied=403", "X-Tenant: other"); w.Code != http.StatusOK {
		t.Errorf("another tenant: got %d %s", w.Code, w.Body)
	}
}

func TestCheckOfALimitWithoutATenant(t *testing.T) {
	h := newCheck(t, dial(t), CheckConfig{})
	login := func(ip string) int {
		return askOf(h, "GET /check", "X-Original-Method: POST", "X-Original-URI: //login?next=/", "X-Real-IP: "+ip).Code
	}
	for i := range 3 {
		if got := login("10.0.0.1"); got != http.StatusOK {
			t.Fatalf("login %d of 3: got %d", i+1, got)
		}
	}
	if got := login("10.0.0.1"); got != http.StatusTooManyRequests {
		t.Errorf("the 4th login: got %d, want 429", got)
	}
	if got := login("10.0.0.2"); got != http.StatusOK {
		t.Errorf("another address: got %d, want 200", got)
	}
}

func TestCheckCosts(t *testing.T) {
	c := dial(t)
	h := newCheck(t, c, CheckConfig{CostHeader: "X-Cost"})
	looks := newCheck(t, c, CheckConfig{CostHeader: "X-Cost", AllowFree: true})
	if w := askOf(looks, "POST /check", "X-Tenant: acme", "X-Cost: 0"); w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Remaining") != "10" {
		t.Errorf("a look at a bucket that nobody used: got %d with %v, want 10 left", w.Code, w.Header())
	}
	for _, test := range []struct {
		cost string
		want int
	}{
		{"11", http.StatusRequestEntityTooLarge}, // more than will ever be there, and nothing taken
		{"7", http.StatusOK},
		{"0", http.StatusBadRequest}, // free checks are not for everybody
		{"4", http.StatusTooManyRequests},
		{"", http.StatusOK}, // 1
		{"2", http.StatusOK},
		{"1", http.StatusTooManyRequests},
	} {
		if w := askOf(h, "POST /check", "X-Tenant: acme", "X-Cost: "+test.cost); w.Code != test.want {
			t.Errorf("cost %q: got %d, want %d: %s", test.cost, w.Code, test.want, w.Body)
		}
	}
	for _, cost := range []string{"-1", "1.5", "many", "1000000001", "9223372036854775808"} {
		w := askOf(h, "GET /check", "X-Tenant: acme", "X-Cost: "+cost)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "X-Cost") {
			t.Errorf("cost %q: got %d %s, want 400 and why", cost, w.Code, w.Body)
		}
	}
}

func TestCheckThatCannotBeUsed(t *testing.T) {
	h := newCheck(t, dial(t), CheckConfig{Require: []string{"tenant"}})
	if w := askOf(h, "GET /check"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "tenant") {
		t.Errorf("without a required tenant: got %d %s", w.Code, w.Body)
	}
	for _, query := range []string{"denied=200", "denied=x", "denied=600"} {
		if w := askOf(h, "GET /check?"+query, "X-Tenant: acme"); w.Code != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", query, w.Code)
		}
	}
	if w := askOf(h, "GET /check", "X-Tenant: acme"); w.Code != http.StatusOK {
		t.Errorf("a good check after bad ones: got %d %s", w.Code, w.Body)
	}
}

// An agent that has never reached a server is not the caller's fault.
func TestCheckWithoutAServer(t *testing.T) {
	c := dialAt(t, "127.0.0.1:1", client.WithFirstWait(0), client.WithMaxWait(10*time.Millisecond))
	h := newCheck(t, c, CheckConfig{})
	for _, url := range []string{"GET /check", "GET /check?denied=403"} {
		if w := askOf(h, url, "X-Tenant: acme"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d, want 503: %s", url, w.Code, w.Body)
		}
	}
}
