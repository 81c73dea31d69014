package doors

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAttributesOfARequest(t *testing.T) {
	for _, test := range []struct {
		name   string
		specs  []string
		url    string
		header http.Header
		want   string
	}{
		{
			name: "nginx", url: "/check",
			header: http.Header{
				"X-Tenant": {"acme"}, "X-Original-Method": {"POST"},
				"X-Original-Uri": {"/orders/a%20b?x=1"}, "X-Real-Ip": {"10.1.2.3"},
			},
			want: "tenant=acme|endpoint=POST /orders/a b|method=POST|ip=10.1.2.3",
		},
		{
			name: "traefik and caddy", url: "/check",
			header: http.Header{
				"X-Tenant": {"acme"}, "X-Forwarded-Method": {"PUT"}, "X-Forwarded-Uri": {"/a"},
				"X-Forwarded-For": {"6.6.6.6, 10.1.2.4"},
			},
			want: "tenant=acme|endpoint=PUT /a|method=PUT|ip=10.1.2.4",
		},
		{
			name: "asked directly", url: "/check/orders?b=2",
			want: "endpoint=GET /orders|method=GET|ip=192.0.2.1",
		},
		{name: "no path at all", url: "/check", want: "endpoint=GET /|method=GET|ip=192.0.2.1"},
		{
			name: "a later line of X-Forwarded-For is nearer", url: "/check",
			specs:  []string{"ip=ip"},
			header: http.Header{"X-Forwarded-For": {"6.6.6.6", "10.0.0.1, [2001:db8::1]:443"}},
			want:   "ip=2001:db8::1",
		},
		{
			name: "what is no address is not known, and not the gateway's", url: "/check",
			specs:  []string{"ip=ip", "method=method"},
			header: http.Header{"X-Real-Ip": {"10.0.0.1, evil"}, "X-Forwarded-For": {"10.0.0.2"}},
			want:   "method=GET",
		},
		{
			name: "nor where the last to be forwarded is none", url: "/check",
			specs:  []string{"ip=ip", "method=method"},
			header: http.Header{"X-Forwarded-For": {"10.0.0.1, unknown"}},
			want:   "method=GET",
		},
		{
			name: "a path is decided as it was sent, and cleaned", url: "/check//login/./x/..",
			specs: []string{"path=path"},
			want:  "path=/login",
		},
		{
			name: "a mapped address is the IPv4 one", url: "/check",
			specs:  []string{"ip=ip"},
			header: http.Header{"X-Real-Ip": {"::ffff:10.0.0.9"}},
			want:   "ip=10.0.0.9",
		},
		{
			name: "the first source with a value wins", url: "/check",
			specs:  []string{"tenant=header:X-Key, header:X-Tenant,value:nobody"},
			header: http.Header{"X-Tenant": {"t"}},
			want:   "tenant=t",
		},
		{
			name: "a constant, and the host without its port", url: "/check",
			specs:  []string{"tenant=header:X-Key,value:nobody", "host=host"},
			header: http.Header{"X-Forwarded-Host": {"Shop.Example:8443"}},
			want:   "tenant=nobody|host=shop.example",
		},
		{
			name: "a path that cannot be decoded stays", url: "/check",
			specs:  []string{"path=path"},
			header: http.Header{"X-Original-Uri": {"/%zz?q=1"}},
			want:   "path=/%zz",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			specs := test.specs
			if specs == nil {
				specs = DefaultAttributes()
			}
			a, err := ParseAttributes(specs)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("GET", test.url, nil)
			for name, values := range test.header {
				r.Header[name] = values
			}
			var got []string
			a.Of(r, func(name, value string) { got = append(got, name+"="+value) })
			if joined := strings.Join(got, "|"); joined != test.want {
				t.Errorf("got  %s\nwant %s", joined, test.want)
			}
		})
	}
}

// Another spelling of a path must not escape its limit.
func TestPlainPath(t *testing.T) {
	for _, test := range []struct{ uri, want string }{
		{"", "/"},
		{"/", "/"},
		{"/orders?x=/../y", "/orders"},
		{"//orders", "/orders"},
		{"/./orders/", "/orders/"},
		{"/x/../orders", "/orders"},
		{"/x/..%2forders", "/orders"},
		{"/../../orders//7", "/orders/7"},
		{"/orders#x", "/orders"},
		{"/orders#x?y", "/orders"},
		{"/orders%23x", "/orders#x"},
		{"http://shop.example/orders?x", "/orders"},
		{"http://shop.example", "/"},
		{"*", "/*"},
		{"/%zz?q", "/%zz"},
	} {
		if got := plainPath(test.uri); got != test.want {
			t.Errorf("%q: got %q, want %q", test.uri, got, test.want)
		}
	}
}

func TestParseAttributesReportsEveryFault(t *testing.T) {
	_, err := ParseAttributes([]string{
		"tenant", "x y=method", "a=header:", "b=heade:X", "c=value:", "d=method", "d=path", "ok=method+path",
	})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		`"tenant": write NAME=SOURCE`, `"x y=method": write NAME=SOURCE`, `"" is not a header's name`,
		`no such source: "heade:X"`, `no such source: "value:"`, "d is given twice",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in\n%v", want, err)
		}
	}
	if got, want := strings.Count(err.Error(), "\n"), 5; got != want {
		t.Errorf("got %d line ends in the faults, want %d:\n%v", got, want, err)
	}
}
