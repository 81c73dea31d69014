package policy_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/policy"
)

const everything = `
slot: 15m
default_plan: a
costs: [tokens_in, {name: tokens_out, reserve: {quantile: 99.5%, by: model}}]
gateways: {envoy: {domain: edge, descriptors: {path: endpoint, "header:x": tenant}, after: [used]}, none: {}}
limits:
  - {name: login, rate: 5/30s, by: [ip/24], match: {ip: [10.0.0.0/8], endpoint: "POST *"}, on_outage: closed, epsilon: 1%}
plans:
  a:
    limits:
      - {name: monthly, algorithm: fixed_window, rate: 1000000000/month, zone: Asia/Tokyo, meter: requests}
      - {name: strict, rate: 7/second, burst: 1000000000, enforcement: strict, on_outage: open, by: [user]}
      - {name: count, meter: calls, by: [endpoint]}
      - {name: tokens, rate: 100/minute, cost: tokens_in}
      - {name: money, rate: 100/hour, cost: {by: model, weights: {small: {tokens_in: 0.15, tokens_out: 0.6}, "*": {tokens_out: 1000000000}}}}
  b: {}
tenants:
  - {id: "org:1/x@y", plan: a}
  - {id: team, plan: b, parent: "org:1/x@y", limits: [{name: extra, rate: 1/week}]}
`

// sent is m after its encoding, as a call would carry it.
func sent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

func TestPolicyRound(t *testing.T) {
	example, err := os.ReadFile("../../examples/quota.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{everything, string(example)} {
		d, err := policy.Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want := d.Policy(42)
		got, err := wire.PolicyFromProto(sent(t, wire.PolicyToProto(want)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("policy: %v\n got %+v\nwant %+v", err, got, want)
		}
		for _, want := range d.Tenants() {
			want.Revision = 9
			got, err := wire.TenantFromProto(sent(t, wire.TenantToProto(want)))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("tenant: %v\n got %+v\nwant %+v", err, got, want)
			}
		}
	}
}

func TestFaultsRound(t *testing.T) {
	_, want := policy.Parse("quota.yaml", []byte("plans: {p: {limit: []}}\nslot: 7m\n"))
	var faults fault.Faults
	if !errors.As(want, &faults) || len(faults) != 2 {
		t.Fatalf("parsing gave %v, want two faults", want)
	}
	over := wire.Error(fmt.Errorf("apply: %w", want))
	if got := status.Code(over); got != codes.InvalidArgument {
		t.Errorf("code %v, want InvalidArgument", got)
	}
	got := wire.FromError(status.FromProto(status.Convert(over).Proto()).Err())
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
