package load

import (
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/pkg/client"
)

// A request that is written is the one that its tenant would send, whatever was there before.
func TestRequestsAreTheirTenants(t *testing.T) {
	for limits := 1; limits <= maxLimits; limits++ {
		c := Config{Limits: limits, Prefix: []string{"", "t", "of-another-load-"}[limits%3]}
		q := newRequests(&c)
		for n, tenant := range []uint32{0, 7, 42, 999, 1000, 54_321, 99_999, 100_000, 999_999, 3, 123_456, 10} {
			i := n % ahead
			q.write(i, tenant)
			if got, want := q.of(i), attributesOf(c.Tenant(int(tenant)), limits); !slices.Equal(got, want) {
				t.Errorf("%d limits: got %v of tenant %d, want %v", limits, got, tenant, want)
			}
		}
	}
}

// Writing one request changes none that was written before it.
func TestRequestsAreApart(t *testing.T) {
	c := Config{Limits: 3}
	q, want := newRequests(&c), make([][]client.Attribute, ahead)
	for i := range want {
		tenant := uint32(i * 777)
		q.write(i, tenant)
		want[i] = attributesOf(c.Tenant(int(tenant)), 3)
	}
	for i := range want {
		if got := q.of(i); !slices.Equal(got, want[i]) {
			t.Errorf("request %d: got %v, want %v", i, got, want[i])
		}
	}
	if name := q.of(0)[0].Value; !strings.HasPrefix(name, "tenant-") {
		t.Errorf("got %q for a tenant", name)
	}
}

func BenchmarkWrite(b *testing.B) {
	q := newRequests(&Config{Limits: 1})
	for b.Loop() {
		for i := range ahead {
			q.write(i, uint32(b.N+i)%10_000)
		}
	}
}
