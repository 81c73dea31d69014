//go:build !interleave

package bucket

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// Every order of operations on shared memory is run in a build of its own (interleave_test.go), which replaces the atomic
// operations and the mutex. One goroutine at a time runs there, so the race detector has nothing to find.
func TestEveryOrder(t *testing.T) {
	unraced.Only(t)
	if testing.Short() {
		t.Skip("it builds another test binary")
	}
	program := filepath.Join(t.TempDir(), "orders.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-tags", "interleave", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// No bound of its own: on a slow machine it takes what it takes, within this test's.
	out, err := exec.CommandContext(t.Context(), program, "-test.run", "^TestInterleaving", "-test.v", "-test.timeout", "0").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	passed := bytes.Count(out, []byte("--- PASS: TestInterleaving")) - bytes.Count(out, []byte("    --- PASS: TestInterleaving"))
	if passed != 10 {
		t.Errorf("%d tests passed, want 10:\n%s", passed, out)
	}
}
