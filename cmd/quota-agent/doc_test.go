package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every example of quota-agent in the docs runs as it stands against a server, and there is one of each command
// that --help tells of.
func TestDocumentedCommands(t *testing.T) {
	var lines []string
	for _, file := range []string{"doors.md", "journal.md"} {
		text, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		whole := strings.ReplaceAll(string(text), "\\\n", " ")
		for _, m := range regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?(quota-agent (?:recover )?--.*)$`).FindAllStringSubmatch(whole, -1) {
			lines = append(lines, m[1])
		}
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); err == nil {
		t.Fatal("no help")
	}
	told := regexp.MustCompile(`quota-agent (\w+) \[flags\]`).FindAllStringSubmatch(help.String(), -1)
	if len(told) == 0 {
		t.Errorf("--help tells of no command: %s", help.String())
	}
	for _, m := range append(told, []string{"", "--server"}) {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Fields(line)[1] == m[1] }) {
			t.Errorf("docs have no example of quota-agent %s: %q", m[1], lines)
		}
	}
	server := startServer(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "http.sock")
	t.Setenv("QUOTA_AGENT_HTTP_ADDR", "unix:"+socket)
	t.Setenv("QUOTA_AGENT_GRPC_ADDR", "127.0.0.1:0")
	journal := filepath.Join(dir, "journal") // the disk of the host that is no more is the one that an agent wrote
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret of this test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	given := strings.NewReplacer("quota-1:7600,quota-2:7600", server.GRPCAddr(), "quota.internal:7600", server.GRPCAddr(), `"$QUOTA_KEY"`, "a-key",
		"/run/quota", dir, "127.0.0.1:7611", "127.0.0.1:0", "/var/lib/quota-agent", journal, "/mnt/old/quota-agent", journal, "/etc/quota-agent/journal-secret", secret)
	for _, line := range lines {
		args := strings.Fields(given.Replace(line))[1:]
		if args[0] == "recover" {
			var out, log bytes.Buffer
			if code := run(args, &out, &log); code != 0 || out.Len() == 0 {
				t.Errorf("%s: exit %d\n%s%s", line, code, &out, &log)
			}
			continue
		}
		if _, err := parse(args, io.Discard); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		end := startAgent(t, args...)
		waitReady(t, socket)
		end()
	}
}

// Every recipe that hears a tenant from the client says what is better: who copies it believes whoever calls.
func TestRecipesSayWhoseWordATenantIs(t *testing.T) {
	text, err := os.ReadFile("../../docs/doors.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^##+ `).Split(string(text), -1)
	for _, gateway := range []string{"nginx", "Caddy", "Traefik", "Envoy"} {
		i := slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, gateway+"\n") })
		if i < 0 {
			t.Errorf("no section of %s", gateway)
		} else if recipe := sections[i]; !regexp.MustCompile("(?s)```.*better:.*```").MatchString(recipe) {
			t.Errorf("%s: the recipe does not say that its tenant is the client's word", gateway)
		}
	}
}
