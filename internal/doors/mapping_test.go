package doors

import (
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc/metadata"

	"github.com/f4ee788f/quota/pkg/client"
)

// descriptor makes one of "key=value" words.
func descriptor(words ...string) *rlcommon.RateLimitDescriptor {
	d := &rlcommon.RateLimitDescriptor{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func TestDescriptorsBecomeAttributes(t *testing.T) {
	m := newMapping([]client.Gateway{
		{Name: "envoy", Domain: "edge", Descriptors: map[string]string{
			"remote_address": "ip", "path": "endpoint", "verb": "method", "header:X-Tenant": "tenant", "header:x-key": "key",
		}},
		{Name: "meta", Domain: "meta", Descriptors: map[string]string{"header:x-tenant": "tenant"}},
		{Name: "rest", Descriptors: map[string]string{"user": "user"}},
	})
	for _, test := range []struct {
		name, domain string
		d            *rlcommon.RateLimitDescriptor
		md           metadata.MD
		want         string
	}{
		{"by key", "edge", descriptor("remote_address=10.0.0.1", "x-tenant=acme"), nil, "ip=10.0.0.1|tenant=acme"},
		{"the header's word as a key", "edge", descriptor("header:x-tenant=acme"), nil, "tenant=acme"},
		{"in any case", "edge", descriptor("X-Tenant=acme"), nil, "tenant=acme"},
		{"from the call's metadata", "edge", descriptor("remote_address=::1"), metadata.Pairs("x-tenant", "m", "x-key", "k"), "ip=::1|key=k|tenant=m"},
		{"the descriptor before the metadata", "edge", descriptor("x-tenant=d"), metadata.Pairs("x-tenant", "m"), "tenant=d"},
		{"the first of two entries", "edge", descriptor("x-tenant=a", "header:x-tenant=b"), nil, "tenant=a"},
		{"a bare path with its method", "edge", descriptor("path=//orders?x=1", "verb=POST"), nil, "endpoint=POST /orders|method=POST"},
		{"a bare path alone", "edge", descriptor("path=/orders/?x"), nil, "endpoint=/orders/"},
		{"an endpoint already whole", "edge", descriptor("path=POST /orders", "verb=POST"), nil, "endpoint=POST /orders|method=POST"},
		{"empty values are absent", "edge", descriptor("x-tenant=", "remote_address=1.1.1.1"), nil, "ip=1.1.1.1"},
		{"nothing mapped", "edge", descriptor("generic_key=slow"), metadata.Pairs("x-tenant", "m"), ""},
		{"only headers are mapped", "meta", descriptor("generic_key=slow"), metadata.Pairs("x-tenant", "m"), "tenant=m"},
		{"another domain's words", "other", descriptor("user=u", "path=/x"), nil, "user=u"},
		{"keys are exact", "edge", descriptor("PATH=/x"), nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, a := range m.of(test.domain).attributes(test.d, test.md) {
				got = append(got, a.Name+"="+a.Value)
			}
			if joined := strings.Join(got, "|"); joined != test.want {
				t.Errorf("got %s, want %s", joined, test.want)
			}
		})
	}
	if w := newMapping(nil).of("edge"); w != nil {
		t.Errorf("a policy without gateways has words for a domain: %v", w)
	}
}

func TestGatewaysOfOneDomainAddUp(t *testing.T) {
	m := newMapping([]client.Gateway{
		{Name: "a", Domain: "edge", Descriptors: map[string]string{"k": "one", "header:b": "two"}},
		{Name: "b", Domain: "edge", Descriptors: map[string]string{"k": "later", "header:a": "three", "header:B": "four"}},
	})
	var got []string
	for _, a := range m.of("edge").attributes(descriptor("k=1", "b=2", "a=3"), nil) {
		got = append(got, a.Name+"="+a.Value)
	}
	if want := "later=1|four=2|three=3"; strings.Join(got, "|") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "|"), want)
	}
}
