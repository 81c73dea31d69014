package httpquota

import (
	"net/http/httptest"
	"testing"
)

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
