//go:build !interleave

package agent

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/f4ee788f/quota/internal/unraced"
)

// The orders of operations on what requests and the owner share are run in a build of
// their own (interleave_test.go), which replaces the atomic operations and the mutex.
func TestEveryOrder(t *testing.T) {
	unraced.Only(t)
	if testing.Short() {
		t.Skip("it builds another test binary")
	}
	out, err := exec.CommandContext(t.Context(), "go", "test", "-tags", "interleave", "-run", "^TestInterleaving", "-v", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := bytes.Count(out, []byte("\n--- PASS: TestInterleaving")); n != 12 {
		t.Errorf("%d tests ran, want 12:\n%s", n, out)
	}
}
