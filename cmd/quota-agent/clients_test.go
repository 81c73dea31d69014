package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clientsDocument has what the tests of clients/python and clients/node ask for.
const clientsDocument = `
costs: [tokens, tokens_in, tokens_out]
plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 20/hour, burst: 20, meter: requests}
      - {name: tokens, by: [tenant], rate: 1000/hour, burst: 1000, cost: tokens}
tenants:
  - {id: py, plan: free}
  - {id: py-tokens, plan: free}
  - {id: js, plan: free}
  - {id: js-tokens, plan: free}
  - {id: acme, plan: free}
`

// language is one whose clients are tested.
type language struct {
	name    string
	program string
	version string // the oldest
	says    string // how it says its version
	tests   []string
	ran     string // what its tests say when all of them ran, and none was left out
}

var languages = []language{
	{"Python", "python3", "3.9", `^Python (\d+)\.(\d+)`, []string{"-W", "error", "-m", "unittest"}, `(?m)^Ran [1-9]\d* tests in .*\n\nOK$`},
	{"Node", "node", "18.0", `^v(\d+)\.(\d+)`, []string{"--test"}, `(?m)^. fail 0\n(?:.*\n)*. skipped 0$`},
}

// find returns the path of the language's program. Without one the test fails in CI, and is skipped, aloud, elsewhere.
func (l language) find(t *testing.T) string {
	t.Helper()
	say := l.program + " is not in PATH; the clients of " + l.name + " are not tested"
	if path, err := exec.LookPath(l.program); err == nil {
		out, err := exec.CommandContext(t.Context(), path, "--version").Output()
		if err != nil {
			t.Fatalf("%s --version: %v", path, err)
		}
		m := regexp.MustCompile(l.says).FindStringSubmatch(string(out))
		if m != nil && !older(m[1:], strings.Split(l.version, ".")) {
			return path
		}
		say = l.program + " is " + strings.TrimSpace(string(out)) + ", and not " + l.version + " or newer"
	}
	if os.Getenv("CI") != "" || os.Getenv("QUOTA_TEST_REQUIRE") != "" {
		t.Fatal(say)
	}
	t.Skip("SKIPPED: " + say + " (CI=true or QUOTA_TEST_REQUIRE=1 makes this a failure)")
	return ""
}

func older(a, b []string) bool {
	return slices.CompareFunc(a, b, func(a, b string) int {
		x, _ := strconv.Atoi(a) // digits all
		y, _ := strconv.Atoi(b)
		return x - y
	}) < 0
}

// startClientsAgent returns the socket of an agent with that policy.
func startClientsAgent(t *testing.T) (socket string) {
	server := startServerWith(t, clientsDocument)
	socket = filepath.Join(t.TempDir(), "h")
	startAgent(t, "--server", server.GRPCAddr(), "--http-addr", "unix:"+socket, "--grpc-addr", "", "--agent-id", "clients")
	waitReady(t, socket)
	return socket
}

// The clients of other languages pass their own tests, of which some ask this agent.
func TestClients(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			program := l.find(t)
			socket := startClientsAgent(t)
			tests := exec.CommandContext(t.Context(), program, l.tests...)
			tests.Dir = filepath.Join("../../clients", strings.ToLower(l.name))
			tests.Env = append(os.Environ(), "QUOTA_TEST_AGENT=unix:"+socket, "PYTHONDONTWRITEBYTECODE=1")
			tests.WaitDelay = 10 * time.Second
			out, err := tests.CombinedOutput()
			if err != nil || !regexp.MustCompile(l.ran).Match(out) {
				t.Errorf("%s: %v\n%s", tests, err, out)
			}
		})
	}
}

// What docs/clients.md shows runs as it stands.
func TestDocumentedClients(t *testing.T) {
	text, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs("../../clients")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ fence, before, after, file string }{
		{"python", "application = None\n", "print('allowed', d.allowed)\n", "doc.py"},
		{"js", "const app = { use() {} }\n", "console.log('allowed', d.allowed)\n", "doc.mjs"},
	} {
		l := languages[i]
		t.Run(l.name, func(t *testing.T) {
			program := l.find(t)
			_, code, _ := strings.Cut(string(text), "\n```"+c.fence+"\n")
			code, _, found := strings.Cut(code, "\n```\n")
			if !found || strings.Count(code, "/run/quota/http.sock") != 1 {
				t.Fatalf("docs/clients.md has no example in %s that asks /run/quota/http.sock", l.name)
			}
			code = strings.NewReplacer("/run/quota/http.sock", startClientsAgent(t), "'quota'", "'"+library+"/node/src/index.js'").Replace(code)
			file := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(file, []byte(c.before+code+"\n"+c.after), 0o600); err != nil {
				t.Fatal(err)
			}
			example := exec.CommandContext(t.Context(), program, file)
			example.Env = append(os.Environ(), "PYTHONPATH="+library+"/python", "PYTHONDONTWRITEBYTECODE=1")
			out, err := example.CombinedOutput()
			if said := strings.ToLower(string(out)); err != nil || said != "allowed true\n" {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
}
