package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/server/boot"
	"github.com/f4ee788f/quota/internal/testenv"
)

// Every example of quota-server in the docs runs as it stands, and there is one of each command. Where addresses
// and files of a deployment are named, the command line is only read.
func TestDocumentedCommands(t *testing.T) {
	var lines []string
	for _, file := range []string{"operations.md", "ledger.md"} { // a ledger is migrated before months are retained
		text, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		whole := strings.ReplaceAll(string(text), "\\\n", " ")
		for _, line := range regexp.MustCompile(`(?m)^quota-server.*$`).FindAllString(whole, -1) {
			line, _, _ = strings.Cut(line, "#")
			if strings.Contains(line, "--lease-store") && !regexp.MustCompile(`rediss://\w+:\S+@`).MatchString(line) {
				t.Errorf("%s: a Redis without TLS or a user: %s", file, line)
			}
			lines = append(lines, line)
		}
	}
	commandOf := func(line string) string {
		if words := strings.Fields(line); len(words) > 1 && !strings.HasPrefix(words[1], "-") {
			return words[1]
		}
		return ""
	}
	for command := range commands {
		if !slices.ContainsFunc(lines, func(line string) bool { return commandOf(line) == command }) {
			t.Errorf("docs have no example of quota-server %s", command)
		}
		if !strings.Contains(usage, "quota-server "+command+" ") {
			t.Errorf("--help does not tell of %s", command)
		}
	}
	if len(lines) < 7 || commandOf(lines[0]) != "" {
		t.Fatalf("examples: %q", lines)
	}
	text, err := os.ReadFile("../../examples/quota.yaml")
	if err != nil {
		t.Fatal(err)
	}
	owner, archive := testenv.Postgres(t).OwnerURL(), t.TempDir()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("quota.yaml", text, 0o600); err != nil {
		t.Fatal(err)
	}
	given := strings.NewReplacer("$OWNER_URL", owner, "/archive", archive, `"`, "")
	for _, line := range lines {
		args := strings.Fields(given.Replace(line))[1:]
		switch {
		case strings.Contains(line, "--tls-cert"):
			var c boot.Config
			fs := flags("quota-server", usage)
			c.Flags(fs)
			if err := c.Parse(fs, args); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			continue
		case commandOf(line) == "":
			t.Setenv("QUOTA_GRPC_ADDR", "127.0.0.1:0")
			t.Setenv("QUOTA_LOG_LEVEL", "error")
		default:
			t.Setenv("QUOTA_LEDGER_OWNER_URL", owner)
		}
		ctx := t.Context()
		if commandOf(line) == "" {
			var addr string
			ctx, addr = untilServing(t)
			t.Setenv("QUOTA_HTTP_ADDR", addr)
		}
		out := stdout(t, func() {
			if err := run(ctx, func() {}, args); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		})
		if commandOf(line) != "" && out == "" {
			t.Errorf("%s printed nothing", line)
		}
	}
}
