//go:build !interleave

package bucket

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// The orders of operations on what requests and the owner share are run in a build of
// their own (interleave_test.go), which replaces the atomic operations and the mutex. Each test there runs on one
// processor, so two processes share them, half of the time each.
func TestEveryOrder(t *testing.T) {
	unraced.Only(t)
	if testing.Short() {
		t.Skip("it builds another test binary")
	}
	program := filepath.Join(t.TempDir(), "orders.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-tags", "interleave", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const some = "^TestInterleavingsOf(Slots|Denials)"
	var outs [2][]byte
	var errs [2]error
	var group sync.WaitGroup
	for i, args := range [2][]string{{"-test.run", some}, {"-test.run", "^TestInterleaving", "-test.skip", some}} {
		group.Go(func() {
			// No bound of its own: on a slow machine it takes what it takes, within this test's.
			outs[i], errs[i] = exec.CommandContext(t.Context(), program, append(args, "-test.v", "-test.timeout", "0")...).CombinedOutput()
		})
	}
	group.Wait()
	n := 0
	for i, out := range outs {
		if errs[i] != nil {
			t.Errorf("%v\n%s", errs[i], out)
		}
		n += bytes.Count(out, []byte("--- PASS: TestInterleaving")) - bytes.Count(out, []byte("    --- PASS: TestInterleaving"))
	}
	if n != 8 {
		t.Errorf("%d tests ran, want 8:\n%s", n, bytes.Join(outs[:], nil))
	}
}
