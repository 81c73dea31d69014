package quotactl

import (
	"strings"
	"testing"

	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Each lost start has a line. What is not known is not said to be nothing.
func TestLostLines(t *testing.T) {
	units := func(n int64) *int64 { return &n }
	var b strings.Builder
	printLost(&b, []*quotav1.LostEpoch{
		{Agent: "gw", Epoch: 7, State: "lost", Reason: "it burnt", SinceMs: 1772446000000, MostUnits: units(12), Limits: []*quotav1.LostUnits{{Limit: "requests", MostUnits: units(12)}}},
		{Agent: "gw", Epoch: 6, State: "gone", SinceMs: 1772446000000, Limits: []*quotav1.LostUnits{{Limit: "counted"}, {Limit: "requests", MostUnits: units(3)}}},
		{Agent: "gw", Epoch: 5, State: "lost", SinceMs: 1772446000000, MostUnits: units(4), Limits: []*quotav1.LostUnits{{MostUnits: units(4)}}},
	}, 2)
	want := `may be missing: at most 12 units (requests 12) since 2026-03-02T10:06:40Z, of agent gw, epoch 7, which is lost: it burnt
may be missing: an unknown number of units (counted unknown, requests 3) since 2026-03-02T10:06:40Z, of agent gw, epoch 6, which is gone
may be missing: at most 4 units since 2026-03-02T10:06:40Z, of agent gw, epoch 5, which is lost
and of 2 more epochs
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}
