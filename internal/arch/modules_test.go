package arch_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// What the modules of the SDK may require of others. Each requirement, and all that it requires in turn, stands in the module list of
// every program that links the SDK; engines, flags and metrics therefore stay in the server's module. The last three are for tests.
var sdkRequires = []string{
	module + "/internal/core", module + "/proto/quota",
	"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc", "golang.org/x/sys",
	"go.uber.org/goleak", "github.com/cockroachdb/datadriven", "pgregory.net/rapid",
}

func TestTheSDKRequiresLittle(t *testing.T) {
	for _, dir := range []string{"pkg/client", "internal/core", "proto/quota"} {
		for _, path := range required(t, dir) {
			if !slices.Contains(sdkRequires, path) {
				t.Errorf("%s/go.mod requires %s: a program that links the SDK would list it", dir, path)
			}
		}
	}
	// The check must be able to fail: the server's module needs more.
	if !slices.ContainsFunc(required(t, "."), func(path string) bool { return !slices.Contains(sdkRequires, path) }) {
		t.Error("the server's module passes the check of the SDK's")
	}
}

// required lists what the go.mod of a directory names as used by its own packages.
func required(t *testing.T, dir string) (paths []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join("..", "..", dir, "go.mod")).Output()
	if err != nil {
		t.Fatalf("go mod edit %s: %v", dir, err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	return paths
}
