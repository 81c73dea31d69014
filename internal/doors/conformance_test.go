package doors

import (
	"math"
	"os"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/pkg/client"
)

// conformance is the check of each row of conformance.md. Buckets have 30 units for a tenant and 20 for an address, and
// hardly refill; each row has tenants of its own.
var conformance = map[string]func(n *envoyNode){
	"overall code": func(n *envoyNode) {
		n.want("one of two over", over, edge(descriptor("tenant=a1"), own(descriptor("tenant=a2"), 31)), ok, over)
		n.want("none over", ok, edge(descriptor("tenant=a1"), descriptor("tenant=a2")), ok, ok)
	},
	"order": func(n *envoyNode) {
		n.want("the second of three", over, edge(descriptor("tenant=b1"), own(descriptor("tenant=b2"), 31), descriptor("tenant=b3")), ok, over, ok)
	},
	"one descriptor over": func(n *envoyNode) {
		n.want("one over", over, edge(own(descriptor("tenant=c1"), 20), own(descriptor("tenant=c2"), 31)), ok, over)
		n.want("all 30 of the other", ok, edge(own(descriptor("tenant=c1"), 30)), ok)
	},
	"hits absent": func(n *envoyNode) {
		n.want("one", ok, edge(descriptor("tenant=d")), ok)
		n.want("30 of 29", over, edge(own(descriptor("tenant=d"), 30)), over)
		n.want("29 of 29", ok, edge(own(descriptor("tenant=d"), 29)), ok)
	},
	"request's hits": func(n *envoyNode) {
		n.want("ten each", ok, hits(10, edge(descriptor("tenant=e1"), descriptor("tenant=e2"))), ok, ok)
		n.want("21 of 20", over, hits(21, edge(descriptor("tenant=e1"))), over)
		n.want("20 of 20", ok, hits(20, edge(descriptor("tenant=e2"))), ok)
	},
	"request's 0": func(n *envoyNode) {
		n.want("one", ok, hits(0, edge(descriptor("tenant=f"))), ok)
		n.want("30 of 29", over, edge(own(descriptor("tenant=f"), 30)), over)
	},
	"descriptor's hits": func(n *envoyNode) {
		n.want("30 and 1", ok, hits(1, edge(own(descriptor("tenant=g1"), 30), descriptor("tenant=g2"))), ok, ok)
		n.want("what is left", over, edge(descriptor("tenant=g1"), own(descriptor("tenant=g2"), 29)), over, ok)
	},
	"descriptor's explicit 0": func(n *envoyNode) {
		n.want("of a full bucket", ok, hits(5, edge(own(descriptor("tenant=h"), 0))), ok)
		n.want("all", ok, edge(own(descriptor("tenant=h"), 30)), ok)
		n.want("of an empty one", over, edge(own(descriptor("tenant=h"), 0)), over)
	},
	"same bucket twice": func(n *envoyNode) {
		n.want("31 of 30", over, edge(own(descriptor("tenant=i"), 16), own(descriptor("tenant=i"), 15)), ok, over)
		n.want("30 of 30", ok, edge(own(descriptor("tenant=i"), 15), own(descriptor("tenant=i"), 15)), ok, ok)
	},
	"negative hits": func(n *envoyNode) {
		n.want("the lease", ok, edge(descriptor("tenant=j")), ok)
		n.want("all that is left", ok, edge(own(descriptor("tenant=j"), 29)), ok)
		n.want("20 back", ok, edge(negative(own(descriptor("tenant=j"), 20))), ok)
		n.want("of which 1 is taken, beside 4 more back", ok, edge(negative(own(descriptor("tenant=j"), 4)), descriptor("tenant=j")), ok, ok)
		n.want("23 of 23", ok, edge(own(descriptor("tenant=j"), 23)), ok)
		n.want("and no more", over, edge(descriptor("tenant=j")), over)
	},
	"negative hits beyond what was taken": func(n *envoyNode) {
		n.want("of nothing", ok, edge(negative(own(descriptor("tenant=j2"), 1_000))), ok)
		n.want("5", ok, edge(own(descriptor("tenant=j2"), 5)), ok)
		n.want("far more than that", ok, edge(negative(own(descriptor("tenant=j2"), math.MaxUint64))), ok)
		n.want("30 at most", over, edge(own(descriptor("tenant=j2"), 31)), over)
		n.want("of no tenant", ok, edge(negative(descriptor("colour=red"))), ok)
	},
	"hits beyond a billion": func(n *envoyNode) {
		n.want("a billion and one", over, edge(own(descriptor("tenant=k"), 1_000_000_001)), over)
		n.want("all", ok, edge(own(descriptor("tenant=k"), 30)), ok)
	},
	"stream's end": func(n *envoyNode) {
		n.want("far above", ok, edge(own(descriptor("tenant=l", "used=x"), 500)), ok)
		n.want("while that is owed", over, edge(descriptor("tenant=l")), over)
	},
	"nothing matches": func(n *envoyNode) {
		s := n.must(edge(descriptor("colour=red"))).GetStatuses()[0]
		if s.GetCode() != ok || s.GetCurrentLimit() != nil || s.GetLimitRemaining() != math.MaxUint32 {
			n.t.Errorf("got %v", s)
		}
	},
	"unknown domain": func(n *envoyNode) {
		n.want("elsewhere", ok, &rls.RateLimitRequest{Domain: "elsewhere", Descriptors: []*rlcommon.RateLimitDescriptor{own(descriptor("tenant=m"), 31)}}, ok)
	},
	"empty domain": func(n *envoyNode) {
		n.refuses(codes.InvalidArgument, &rls.RateLimitRequest{Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("tenant=n")}})
	},
	"no descriptors": func(n *envoyNode) { n.refuses(codes.InvalidArgument, edge()) },
	"order of entries": func(n *envoyNode) {
		n.want("one way", ok, edge(own(descriptor("tenant=o", "user=u1"), 6)), ok)
		n.want("and the other", over, edge(own(descriptor("user=u1", "tenant=o"), 6)), over)
	},
	"limit override": func(n *envoyNode) {
		d := own(descriptor("tenant=p"), 31)
		d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1000, Unit: typev3.RateLimitUnit_SECOND}
		n.want("31 of 30", over, edge(d), over)
	},
	"current limit": func(n *envoyNode) {
		l := n.must(edge(descriptor("tenant=q"))).GetStatuses()[0].GetCurrentLimit()
		if l.GetName() != "requests" || l.GetRequestsPerUnit() != 1 || l.GetUnit() != rls.RateLimitResponse_RateLimit_HOUR || l.GetUnitMultiplier() != nil {
			n.t.Errorf("got %v, want 1 an hour", l)
		}
		l = currentLimit(&client.Details{Limit: "l", Quota: 7, Window: 30e9})
		if l.GetUnit() != rls.RateLimitResponse_RateLimit_SECOND || l.GetUnitMultiplier().GetValue() != 30 || l.GetRequestsPerUnit() != 7 {
			n.t.Errorf("got %v, want 7 in 30 times a second", l)
		}
	},
	"remaining": func(n *envoyNode) {
		n.must(edge(own(descriptor("tenant=r"), 30)))
		if s := n.must(edge(own(descriptor("tenant=s"), 29))).GetStatuses()[0]; s.GetLimitRemaining() != 1 {
			n.t.Errorf("got %v, want 1 left", s)
		}
		if s := n.must(edge(descriptor("tenant=r"))).GetStatuses()[0]; s.GetLimitRemaining() != 0 {
			n.t.Errorf("got %v, want none left", s)
		}
	},
	"until reset": func(n *envoyNode) {
		n.must(edge(own(descriptor("tenant=t"), 30)))
		if d := n.must(edge(descriptor("tenant=t"))).GetStatuses()[0].GetDurationUntilReset().AsDuration(); d.Minutes() < 55 || d.Minutes() > 61 {
			n.t.Errorf("a denial: got %v, want the hour that one unit takes", d)
		}
	},
	"headers": func(n *envoyNode) {
		got := make(map[string]bool)
		for _, h := range n.must(edge(own(descriptor("tenant=u"), 31))).GetResponseHeadersToAdd() {
			got[h.GetKey()] = true
		}
		for _, want := range []string{"ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"} {
			if !got[want] {
				n.t.Errorf("no %s in %v", want, got)
			}
		}
	},
	"fault": func(n *envoyNode) {
		blind := newEnvoy(n.t, dialAt(n.t, "127.0.0.1:1", client.WithFirstWait(0)))
		if _, err := blind.ask(edge(descriptor("tenant=v"))); status.Code(err) != codes.Unavailable {
			n.t.Errorf("got %v, want UNAVAILABLE", err)
		}
	},
}

// negative gives a descriptor's hits back.
func negative(d *rlcommon.RateLimitDescriptor) *rlcommon.RateLimitDescriptor {
	d.IsNegativeHits = true
	return d
}

func (n *envoyNode) refuses(want codes.Code, r *rls.RateLimitRequest) {
	n.t.Helper()
	if _, err := n.ask(r); status.Code(err) != want {
		n.t.Errorf("got %v, want %v", err, want)
	}
}

// Every row of conformance.md has a check, which holds, and every check a row.
func TestConformance(t *testing.T) {
	text, err := os.ReadFile("conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newEnvoyNode(t, strings.Replace(hourly, "tenant: tenant}}", "tenant: tenant}, after: [used]}", 1))
	rows := make(map[string]bool)
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(line, "---") || strings.TrimSpace(cells[1]) == "what" {
			continue
		}
		name := strings.TrimSpace(cells[1])
		rows[name] = true
		check := conformance[name]
		if check == nil {
			t.Errorf("%s: no check", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			n.t, n.envoy.t = t, t
			check(n)
		})
	}
	n.t, n.envoy.t = t, t
	for name := range conformance {
		if !rows[name] {
			t.Errorf("%s: no row", name)
		}
	}
	n.end()
}
