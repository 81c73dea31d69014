package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

func TestMiddleware(t *testing.T) {
	bubble(t, plans(1, requests(1, 3)), func(t *testing.T, s *fake) {
		c := dial(t, s)
		served := 0
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served++ })
		h := Middleware(c)(next)
		get := func(h http.Handler, tenant string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "/orders?x=1", nil)
			r.Header.Set("X-Tenant", tenant)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		for i := range 3 {
			w := get(h, "a")
			if w.Code != 200 || w.Header().Get("RateLimit-Policy") != `"requests";q=1;w=1` || !strings.HasPrefix(w.Header().Get("RateLimit"), `"requests";r=`) {
				t.Errorf("request %d: %d, %v", i, w.Code, w.Header())
			}
		}
		w := get(h, "a")
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || w.Header().Get("X-RateLimit-Remaining") != "0" ||
			!strings.Contains(w.Body.String(), `"violated-policies":["requests"]`) {
			t.Errorf("the fourth: %d, %v, %s; want 429 that names the limit", w.Code, w.Header(), w.Body)
		}
		if w := get(h, ""); w.Code != 400 || w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(), "violated") {
			t.Errorf("without a tenant: %d, %s; want 400 for no limit's sake", w.Code, w.Body)
		}
		degraded := Middleware(c, Degraded(func(w http.ResponseWriter, _ *http.Request, d Decision) bool {
			if d.Limit() != "requests" {
				return false
			}
			w.WriteHeader(203)
			return true
		}))(next)
		if w := get(degraded, "a"); w.Code != 203 || w.Header().Get("RateLimit") == "" {
			t.Errorf("degraded: %d, %v; want its own answer, with headers", w.Code, w.Header())
		}
		costly := Middleware(c, CostOf(func(*http.Request) int64 { return limit.MaxUnits + 1 }))(next)
		if w := get(costly, "a"); w.Code != 400 {
			t.Errorf("a cost out of range: %d, want 400", w.Code)
		}
		if served != 3 {
			t.Errorf("%d requests were served, want 3", served)
		}
		shut(t, c)
		if w := get(h, "a"); w.Code != 503 {
			t.Errorf("after Close: %d, want 503", w.Code)
		}
	})
}

func TestExtract(t *testing.T) {
	r := httptest.NewRequest("POST", "/orders?x=1", nil)
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header.Set("X-Org", "acme")
	r.Header.Set("X-User", "u1")
	r.Header.Add("X-Forwarded-For", "6.6.6.6")
	r.Header.Add("X-Forwarded-For", "10.0.0.1, 198.51.100.2")
	find := func(e Extract, name string) string {
		for _, a := range e.Attributes(r) {
			if a.Name == name {
				return a.Value
			}
		}
		return ""
	}
	e := Extract{TenantHeader: "X-Org"}
	for name, want := range map[string]string{"tenant": "acme", "user": "u1", "ip": "192.0.2.7", "endpoint": "POST /orders", "method": "POST"} {
		if got := find(e, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, spelling := range []string{"//orders", "/./orders", "/x/../orders", "/x/..%2forders", "/%6frders"} {
		r = httptest.NewRequest("POST", "http://shop.example"+spelling, nil)
		if got := find(e, "endpoint"); got != "POST /orders" {
			t.Errorf("%s: the endpoint is %q, want that of /orders", spelling, got)
		}
	}
	r.Header.Add("X-Forwarded-For", "6.6.6.6")
	r.Header.Add("X-Forwarded-For", "10.0.0.1, 198.51.100.2")
	if got := find(Extract{IPHeader: "X-Forwarded-For"}, "ip"); got != "198.51.100.2" {
		t.Errorf("behind a proxy the ip is %q, want the last that it saw", got)
	}
	if got := find(Extract{IPHeader: "X-None"}, "ip"); got != "" {
		t.Errorf("without the header the ip is %q, want none", got)
	}
}
