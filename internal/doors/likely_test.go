package doors

import (
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	ratelimitv1 "github.com/f4ee788f/quota/proto/kuadrant/service/ratelimit/v1"
)

// A reservation's answer says what is reserved: what is likely, once that is known, and what was asked for before.
func TestJSONReservesWhatIsLikely(t *testing.T) {
	s := readOpenAPI(t)
	n := newEnvoyNode(t, strings.Replace(llm, "tokens_out]", "{name: tokens_out, reserve: {quantile: 90%, by: model}}]", 1))
	reservations := NewReservations(n.client, RandomIDKey(), "")
	defer reservations.Close()
	door := NewJSON(n.client, reservations, JSONConfig{}, newMetrics(t))
	const small = `{"attributes":{"tenant":"acme","model":"small"},"units":0,"costs":{"tokens_in":5,"tokens_out":400}}`
	for range 20 {
		id := reserved(t, door, small)
		course{{"/v1/commit", `{"id":"ID","costs":{"tokens_in":1,"tokens_out":50}}`, 200, `"late":false`}}.run(t, s, door, id)
	}
	other := strings.Replace(small, "small", "large", 1)
	course{
		{"/v1/reserve", small, 200, `"reserved":{"units":0,"costs":{"tokens_in":5,"tokens_out":51}}}`},
		{"/v1/reserve", strings.Replace(small, "400", "30", 1), 200, `"reserved":{"units":0,"costs":{"tokens_in":5,"tokens_out":30}}}`},
		{"/v1/reserve", strings.Replace(small, "{", `{"whole": true,`, 1), 200, `"reserved":{"units":0,"costs":{"tokens_in":5,"tokens_out":400}}}`},
		{"/v1/reserve", strings.Replace(small, "{", `{"whole":false ,`, 1), 200, `"tokens_out":51}`},
		{"/v1/reserve", strings.Replace(small, "{", `{"whole":1,`, 1), 400, "whole: "},
		{"/v1/reserve", strings.Replace(small, "{", `{"whole":trueish,`, 1), 400, "where a comma"},
		{"/v1/reserve", other, 200, `"reserved":{"units":0,"costs":{"tokens_in":5,"tokens_out":400}}}`},
		{"/v1/reserve", `{"attributes":{"tenant":"acme"},"costs":{"tokens_in":0}}`, 200, `"expires_seconds":60,"reserved":{"units":1}}`},
	}.run(t, s, door, "")
	if got := n.end("acme")[0]["tokens"][0]; got != 20*101 {
		t.Errorf("the ledger has %d tokens, want %d", got, 20*101)
	}
}

// Kuadrant's gateways do not hear what is reserved, and cannot extend: they get the whole amount.
func TestKuadrantReservesTheWhole(t *testing.T) {
	n := newEnvoyNode(t, "gateways: {envoy: {domain: edge, descriptors: {tenant: tenant}, hits: tokens_out}}\n"+
		strings.Replace(llm, "tokens_out]", "{name: tokens_out, reserve: {quantile: 90%, first: 1}}]", 1))
	reservations := NewReservations(n.client, RandomIDKey(), "")
	defer reservations.Close()
	k := NewKuadrant(NewEnvoy(n.client, newMetrics(t), nil), reservations)
	acme := []*rlcommon.RateLimitDescriptor{descriptor("tenant=acme")}
	for i, want := range []string{"OK", "OK", "OVER_LIMIT"} { // the limit holds twice as many
		got, err := k.Reserve(t.Context(), &ratelimitv1.ReserveRequest{Domain: "edge", Descriptors: acme, Amount: 1200})
		if err != nil || got.GetCode().String() != want {
			t.Errorf("reservation %d of 1200: %v, %v; want %s", i+1, got, err, want)
		}
	}
	if all := n.end("acme"); len(all) == 0 {
		t.Error("the ledger knows no tenant")
	}
}
