package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"
)

// When a key was used is written once a minute, all keys at once, and again where that failed; a change of the keys
// forgets none.
func TestUseIsWrittenOnceAMinute(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	ring := &Keyring{now: func() time.Time { return now }}
	keys := []credential{{id: "a", role: roleViewer, hash: sha256.Sum256([]byte("a"))}, {id: "b", role: roleViewer, hash: sha256.Sum256([]byte("b"))}}
	ring.replace(keys, true)
	use := func(secret string) {
		t.Helper()
		if _, err := ring.authenticate(secret, ""); err != nil {
			t.Fatal(err)
		}
	}
	var wrote []map[string]time.Time
	var fails error
	flush := func() {
		_ = ring.flushUsed(t.Context(), func(_ context.Context, used map[string]time.Time) error {
			wrote = append(wrote, used)
			return fails
		})
	}
	flush() // nothing
	use("a")
	ring.replace(keys, true)
	fails = errors.New("away")
	flush()
	fails = nil
	flush()
	now = now.Add(30 * time.Second)
	use("a")
	flush() // nothing: it is the same minute
	now = now.Add(30 * time.Second)
	use("a")
	use("b")
	flush()
	if len(wrote) != 3 || len(wrote[0]) != 1 || len(wrote[1]) != 1 || len(wrote[2]) != 2 || !wrote[2]["a"].Equal(now) {
		t.Errorf("wrote %v, want a twice, since the first failed, and then both", wrote)
	}
}
