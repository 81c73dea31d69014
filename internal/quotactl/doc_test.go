package quotactl

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// documented are the commands whose examples are run, and services whose routes are.
var documented = regexp.MustCompile(`^(?:\$ )?quotactl (usage|statement|credit|audit|alert)\b.*$`)

const documentedPolicy = `webhooks:
  ops: {url: "https://hooks.example.com/quota", secret: {env: QUOTA_WEBHOOK_OPS}}
alerts: [{name: spent, spending: 100.00 USD, webhooks: [ops]}]
plans:
  free: {limits: [{name: requests, by: [tenant], rate: 100/hour, meter: requests}]}
  paid:
    limits: [{name: requests, by: [tenant], rate: 1000/hour, meter: requests}]
    price: {monthly: 49.00 USD, meters: {requests: {unit: 0.05}}}
  enterprise: {limits: [{name: requests, by: [tenant], rate: 10000/hour, meter: requests}], price: {monthly: 99.00 USD}}
tenants: [{id: acme, plan: paid}]
`

// Every example of these commands in the docs can be run as it stands, and there is one of
// each command. What a new server cannot do yet it refuses for the reason that it should.
func TestDocumentedCommands(t *testing.T) {
	var lines []string
	seen := map[string]bool{}
	for _, file := range []string{"alerts.md", "billing.md", "quotactl.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if line = strings.TrimSpace(line); code && documented.MatchString(line) && !seen[line] {
				lines, seen[line] = append(lines, line), true
			}
		}
	}
	e := start(t, nil)
	t.Chdir(e.dir)
	e.ok("apply", "-f", e.file("next.yaml", documentedPolicy))
	if len(lines) < 15 {
		t.Fatalf("%d examples: %q", len(lines), lines)
	}
	ran := map[string]bool{}
	for _, line := range lines {
		words := shellWords(strings.TrimPrefix(line, "$ "))[1:]
		path := words[0]
		if words[0] != "audit" && (words[0] != "usage" || len(words) > 1 && !strings.HasPrefix(words[1], "-")) {
			path += " " + words[1]
		}
		ran[path] = true
		_, errs, code := e.run(words...)
		because := map[string]string{"statement close": "has not ended", "statement show": "no statement of tenant", "usage": "no shadow"}[path]
		if code != 0 && (because == "" || !strings.Contains(errs, because)) {
			t.Errorf("%s: exit %d, %s", line, code, errs)
		}
	}
	c := &cli{Streams: Streams{Out: io.Discard, Err: io.Discard}}
	for _, top := range []*cobra.Command{c.usageCommand(), c.statementCommand(), c.creditCommand(), c.alertCommand(), c.auditCommand()} {
		if top.RunE != nil && top.Name() != "statement" && top.Name() != "credit" && top.Name() != "alert" && !ran[top.Name()] {
			t.Errorf("no example of quotactl %s", top.Name())
		}
		for _, sub := range top.Commands() {
			if !ran[top.Name()+" "+sub.Name()] {
				t.Errorf("no example of quotactl %s %s", top.Name(), sub.Name())
			}
		}
	}
}

// shellWords splits a line as a shell does, without its comment and redirection.
func shellWords(line string) (words []string) {
	for rest := strings.TrimSpace(line); rest != "" && rest[0] != '#' && rest[0] != '>'; rest = strings.TrimLeft(rest, " ") {
		if rest[0] == '\'' {
			word, after, _ := strings.Cut(rest[1:], "'")
			words, rest = append(words, word), after
			continue
		}
		word, after, _ := strings.Cut(rest, " ")
		words, rest = append(words, word), after
	}
	return words
}

// Every route of usage, statements, credits and the audit log is in docs/rest.md: with the
// parameters that it has, and a body that it takes.
func TestDocumentedRoutes(t *testing.T) {
	text, err := os.ReadFile("../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := os.ReadFile("../../proto/rest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, nil)
	e.ok("apply", "-f", e.file("next.yaml", documentedPolicy))
	e.ok("credit", "give", "acme", "5.00 USD", "--id", "autumn-acme")
	e.ok("alert", "test", "ops")
	call := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+e.s.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	told := map[string]bool{}
	route := regexp.MustCompile("`(GET|POST) (/v1/(?:usage|statements|credits|audit|alerts|webhooks)[^` ]*)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range route.FindAllStringSubmatch(cells[1], -1) {
			path, query, asks := strings.Cut(strings.NewReplacer("/ID:", "/autumn-acme:", "/NUMBER", "/1", "/NAME:", "/ops:").Replace(m[2]), "?")
			told[m[1]+" "+strings.NewReplacer("autumn-acme", "{id}", "alerts/1", "alerts/{number}", "webhooks/ops", "webhooks/{webhook}").Replace(path)] = true
			if m[1] == "GET" && !asks {
				if code, answer := call("GET", path, ""); code != 200 {
					t.Errorf("GET %s: %d %s", path, code, answer)
				}
				continue
			}
			if m[1] == "GET" {
				for pair := range strings.SplitSeq(query, "&") {
					name, _, _ := strings.Cut(pair, "=")
					if code, answer := call("GET", path+"?"+name+"=1", ""); name == "" || strings.Contains(answer, "there is no parameter") || code == 404 && strings.Contains(answer, "Not Found") {
						t.Errorf("GET %s?%s: %d %s", path, name, code, answer)
					}
				}
				continue
			}
			body := regexp.MustCompile("`({.*?})`").FindStringSubmatch(cells[2])
			if body == nil {
				t.Errorf("POST %s has no example of its body", path)
				continue
			}
			code, answer := call("POST", path, body[1])
			if refused := strings.Contains(answer, "has not ended") || strings.Contains(answer, "is closed next") || strings.Contains(answer, "no plan"); code != 200 && !refused {
				t.Errorf("POST %s %s: %d %s", path, body[1], code, answer)
			}
		}
	}
	for _, m := range regexp.MustCompile(`quota\.v1\.(?:UsageService|StatementService|AlertService|AdminService\.ListAudit).*(get|post): (?:"([^"]*)"|([^",}]*))`).FindAllStringSubmatch(string(mapping), -1) {
		if !told[strings.ToUpper(m[1])+" "+m[2]+m[3]] {
			t.Errorf("docs/rest.md does not tell of %s %s%s", m[1], m[2], m[3])
		}
	}
	if !told["GET /v1/usage/export"] || len(told) < 12 {
		t.Errorf("routes: %v", told)
	}
}
