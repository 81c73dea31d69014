package arch_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Every program has the time zones with it, and so has whoever links the SDK: an image without a database of them must
// not count windows in another zone, nor refuse a policy.
func TestEveryProgramHasTheTimeZones(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{if or (eq .Name "main") (eq .ImportPath "`+module+`/pkg/client")}}{{.ImportPath}} {{join .Deps " "}}{{end}}`, module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		name, deps := strings.TrimPrefix(words[0], module+"/"), words[1:]
		if !slices.ContainsFunc(deps, func(d string) bool { return strings.HasPrefix(d, module) }) {
			continue // it knows nothing of limits
		}
		seen = append(seen, name)
		if !slices.Contains(deps, "time/tzdata") {
			t.Errorf("%s does not have time/tzdata", name)
		}
	}
	for _, name := range []string{"cmd/quota-agent", "cmd/quota-server", "cmd/quotactl", "loadtest", "pkg/client"} {
		if !slices.Contains(seen, name) {
			t.Errorf("%s was not looked at", name)
		}
	}
}
