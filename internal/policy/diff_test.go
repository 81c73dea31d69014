package policy

import (
	"slices"
	"testing"
)

// What a trial cannot say is said when it begins.
func TestUntriedNamesConcurrencyLimits(t *testing.T) {
	doc, err := Parse("quota.yaml", []byte(`
limits: [{name: all, algorithm: concurrency, slots: 100}]
plans: {free: {limits: [{name: calls, rate: 5/s}, {name: flight, algorithm: concurrency, slots: 5}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	const why = " is not tried: whether slots are free is known only of requests that hold them"
	if got, want := Untried(doc), []string{"limit all" + why, "plan free: limit flight" + why}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
