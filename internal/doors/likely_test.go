package doors

import (
	"strings"
	"testing"
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
		{"/v1/reserve", other, 200, `"reserved":{"units":0,"costs":{"tokens_in":5,"tokens_out":400}}}`},
		{"/v1/reserve", `{"attributes":{"tenant":"acme"},"costs":{"tokens_in":0}}`, 200, `"expires_seconds":60,"reserved":{"units":1}}`},
	}.run(t, s, door, "")
	if got := n.end("acme")[0]["tokens"][0]; got != 20*101 {
		t.Errorf("the ledger has %d tokens, want %d", got, 20*101)
	}
}
