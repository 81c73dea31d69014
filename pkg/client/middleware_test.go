package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

func TestMiddleware(t *testing.T) {
	client.OneLimit(t, func(t *testing.T, c *client.Client) {
		served := 0
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served++ })
		h := httpquota.Middleware(c)(next)
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
		degraded := httpquota.Middleware(c, httpquota.WithDegraded(func(w http.ResponseWriter, _ *http.Request, d client.Decision) bool {
			if d.Limit() != "requests" {
				return false
			}
			w.WriteHeader(203)
			return true
		}))(next)
		if w := get(degraded, "a"); w.Code != 203 || w.Header().Get("RateLimit") == "" {
			t.Errorf("degraded: %d, %v; want its own answer, with headers", w.Code, w.Header())
		}
		costly := httpquota.Middleware(c, httpquota.WithCost(func(*http.Request) int64 { return limit.MaxUnits + 1 }))(next)
		if w := get(costly, "a"); w.Code != 400 {
			t.Errorf("a cost out of range: %d, want 400", w.Code)
		}
		if served != 3 {
			t.Errorf("%d requests were served, want 3", served)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if w := get(h, "a"); w.Code != 503 {
			t.Errorf("after Close: %d, want 503", w.Code)
		}
	})
}
