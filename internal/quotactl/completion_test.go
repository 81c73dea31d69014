package quotactl

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/quotactl/render"
	"github.com/f4ee788f/quota/internal/server/boot"
)

// Names are completed from the server, by what they are of; without a server there are none.
func TestCompletionOfNames(t *testing.T) {
	e := start(t, func(c *boot.Config) { c.BootstrapAdminKey = "the-first-key-of-this-test" })
	t.Setenv("QUOTA_KEY", "the-first-key-of-this-test")
	e.ok("tenant", "create", "acme/web", "--plan", "free")
	e.ok("tenant", "create", "globex", "--plan", "free")
	id := strings.Split(strings.TrimSpace(e.ok("key", "create", "--role", "viewer", "--note", "grafana")), "_")[1]
	at := e.args
	e.args = nil // __complete comes before all else
	complete := func(words ...string) []string {
		out, _, _ := e.run(append(append([]string{"__complete"}, at...), words...)...)
		names := []string{}
		for _, l := range strings.Split(out, "\n") {
			if name, _, _ := strings.Cut(l, "\t"); name != "" && !strings.HasPrefix(name, ":") {
				names = append(names, name)
			}
		}
		return names
	}
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"tenant", "suspend", ""}, "[acme acme/web globex]"},
		{[]string{"tenant", "suspend", "acme"}, "[acme acme/web]"},
		{[]string{"tenant", "set-plan", "acme", ""}, "[free paid]"},
		{[]string{"tenant", "set-plan", "acme", "free", ""}, "[]"},
		{[]string{"tenant", "set-limit", "glo"}, "[globex]"},
		{[]string{"tenant", "set-limit", "acme", ""}, "[by-endpoint requests]"},
		{[]string{"tenant", "unset-limit", "acme", "r"}, "[requests]"},
		{[]string{"switch", "deny", "acme", "g"}, "[globex]"},
		{[]string{"tenant", "create", "x", "--plan", "p"}, "[paid]"},
		{[]string{"usage", "report", "--limit", ""}, "[by-endpoint requests]"},
		{[]string{"usage", "report", "--meter", "c"}, "[calls]"},
		{[]string{"rollback", ""}, "[1]"},
		{[]string{"get", "policy", "--version", ""}, "[1]"},
		{[]string{"key", "revoke", ""}, "[" + id + "]"},
		{[]string{"key", "rotate", ""}, "[" + id + "]"},
		{[]string{"tenant", "payers", "acme"}, "[acme acme/web]"},
		{[]string{"audit", "--limit", ""}, "[]"},
		{[]string{"tenant", "get", "acme", "-o", ""}, "[text json]"},
	} {
		if got := fmt.Sprint(complete(c.words...)); got != c.want {
			t.Errorf("quotactl %s: %s, want %s", strings.Join(c.words, " "), got, c.want)
		}
	}
	begun := time.Now()
	at = []string{"--server", "127.0.0.1:1"}
	if got := complete("tenant", "suspend", ""); len(got) != 0 || time.Since(begun) > 10*time.Second {
		t.Errorf("without a server: %s after %v", got, time.Since(begun))
	}
}

// Every argument that names something the server can list is completed.
func TestEveryNameIsCompleted(t *testing.T) {
	kinds := []string{"ID", "TENANT", "PLAN", "LIMIT", "AGENT", "VERSION"}
	// What these name is new, or in no list of the admin service.
	others := []string{"tenant create", "credit void", "ledger quarantine show", "ledger quarantine retry", "ledger quarantine discard"}
	found := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "quotactl ")
		named := 0
		for _, word := range strings.Fields(cmd.Use)[1:] {
			if strings.HasPrefix(word, "-") {
				break
			}
			if slices.Contains(kinds, strings.TrimSuffix(word, "...")) {
				named++
			}
		}
		if cmd.HasSubCommands() || named == 0 || slices.Contains(others, path) {
			return
		}
		found++
		if repeated[path] == nil && len(completed[path]) < named {
			t.Errorf("quotactl %s: %d of the names in %q are completed", path, len(completed[path]), cmd.Use)
		}
	}
	walk((&cli{Printer: render.Printer{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}}).root())
	if found < len(completed) {
		t.Errorf("%d commands with names were found, %d are completed", found, len(completed))
	}
}
