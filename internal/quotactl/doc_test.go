package quotactl

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/boot"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// documentedPolicy is what the examples are about: quota.yaml of the docs. The server begins with
// another rate, and next.yaml has a third, so that both change something.
const documentedPolicy = `webhooks:
  ops: {url: "https://hooks.example.com/quota", secret: {env: QUOTA_WEBHOOK_OPS}}
alerts: [{name: spent, spending: 100.00 USD, webhooks: [ops]}]
plans:
  free: {limits: [{name: requests, by: [tenant], rate: 100/hour, meter: requests}]}
  paid:
    limits: [{name: requests, by: [tenant], rate: 1000/hour, meter: requests}]
    price: {monthly: 49.00 USD, meters: {requests: {unit: 0.05}}}
  enterprise: {limits: [{name: requests, by: [tenant], rate: 10000/hour, meter: requests}], price: {monthly: 99.00 USD}}
`

// documented is a server in the state that the examples of the docs find, with a key of its own.
type documented struct {
	*env
	admin, backfill string // keys
	id              string // of the key to revoke
}

// newDocumented is a server whose ledger has a block of entries and three rows in quarantine, the first two of
// which pass once their tenant is there, and the files that examples name in the working directory.
func newDocumented(t *testing.T) *documented {
	t.Helper()
	d := &documented{admin: "the-first-key-of-this-test"}
	first := strings.ReplaceAll(documentedPolicy, "1000/hour", "500/hour") + "tenants: [{id: acme, plan: paid}]\n"
	d.env = start(t, func(c *boot.Config) {
		c.BootstrapAdminKey, c.FoldInterval = d.admin, 20*time.Millisecond
		if err := os.WriteFile(c.Policy, []byte(first), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	d.args = append(d.args, "--key", d.admin)
	agent := strings.TrimSpace(d.ok("key", "create", "--role", "agent", "--agent", "gateway-*"))
	d.id = strings.Split(agent, "_")[1]
	d.backfill = strings.TrimSpace(d.ok("key", "create", "--role", "backfill"))
	slot := d.now.Truncate(ledger.DefaultSlot)
	row := func(tenant string, n int64) ledger.Row {
		return ledger.Row{Slot: slot.Unix(), Tenant: tenant, Limit: "requests", Meter: "requests", Version: 1, Admitted: n}
	}
	d.report(agent, "gateway-1", row("acme", 1200), row("umbrella", 5))
	d.report(agent, "gateway-2", row("umbrella", 6))
	d.report(agent, "gateway-7", row("nobody", 7))
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if out := d.ok("ledger", "quarantine", "list", "-o", "csv"); strings.Count(out, "\n") == 4 {
			break
		} else if time.Since(begun) > time.Minute {
			t.Fatalf("quarantine: %s", out)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"quota.yaml": documentedPolicy,
		"next.yaml":  strings.ReplaceAll(documentedPolicy, "1000/hour", "2000/hour"),
		"usage.csv":  "time,tenant,limit,meter,admitted,denied\n" + slot.UTC().Format(time.RFC3339) + ",acme,requests,requests,100,3\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// report settles rows of an agent's start that the docs name.
func (d *documented) report(key, agent string, rows ...ledger.Row) {
	d.t.Helper()
	conn, err := grpc.NewClient(d.s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearer(key)))
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	r := ledger.NewReport(agent, 1772446000000, 1, 0, rows, d.now.UnixMilli(), false)
	resp, err := quotav1.NewLeaseServiceClient(conn).Settle(d.t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
	if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		d.t.Fatalf("settle: %v, %v", resp, err)
	}
}

// examples are the lines of code in the README and the docs that match, each once, without their comments.
func examples(t *testing.T, which *regexp.Regexp) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append([]string{"../../README.md"}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			if m := which.FindStringIndex(line); code && m != nil && m[0] == 0 && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// What a new server cannot do yet, it refuses for the reason that it should.
// TestNewUser does these for good.
var notYet = map[string]string{"statement close": "has not ended", "statement show": "no statement of tenant"}

// Every example of quotactl in the docs can be run as it stands, and there is one of each command.
func TestDocumentedCommands(t *testing.T) {
	lines := examples(t, regexp.MustCompile(`^(QUOTA_KEY=\S+ +)?quotactl `))
	d := newDocumented(t)
	given := strings.NewReplacer("k7f3q", d.id, "a:7600,b:7600", d.s.GRPCAddr())
	ran := map[string]bool{}
	for _, line := range lines {
		words := shellWords(given.Replace(line[strings.Index(line, "quotactl"):]))[1:]
		command, _, err := (&cli{}).root().Find(words)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		path := strings.TrimPrefix(command.CommandPath(), "quotactl ")
		ran[path] = true
		if path == "ledger backfill" {
			words = append(words, "--key", d.backfill)
		}
		_, errs, code := d.run(words...)
		if because := notYet[path]; code != 0 && (because == "" || !strings.Contains(errs, because)) {
			t.Errorf("%s: exit %d, %s", line, code, errs)
		}
	}
	count := 0
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		if !c.HasSubCommands() || c.HasParent() && c.LocalNonPersistentFlags().HasFlags() { // a group has no flags of its own
			count++
			if path := strings.TrimPrefix(c.CommandPath(), "quotactl "); !ran[path] {
				t.Errorf("docs have no example of quotactl %s", path)
			}
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each((&cli{}).root())
	if count < 50 {
		t.Errorf("found only %d commands", count)
	}
}

// routes are all that the server serves under /v1: those of proto/rest.yaml, and those written by hand.
func routes(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../proto/rest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var mapping struct {
		HTTP struct {
			Rules []map[string]string `yaml:"rules"`
		} `yaml:"http"`
	}
	if err := yaml.Unmarshal(text, &mapping); err != nil {
		t.Fatal(err)
	}
	for _, rule := range mapping.HTTP.Rules {
		n := len(all)
		for _, method := range []string{"get", "put", "post", "delete", "patch"} {
			if rule[method] != "" {
				all = append(all, strings.ToUpper(method)+" "+rule[method])
			}
		}
		if len(all) != n+1 {
			t.Errorf("proto/rest.yaml: %v is not read", rule)
		}
	}
	files, err := filepath.Glob("../server/rest/*.go")
	if err != nil {
		t.Fatal(err)
	}
	byHand := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`Method(\w+) && r\.URL\.Path == "(/[^"]*)"|Handle(?:Func)?\("(GET|POST|PUT|DELETE) (/[^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, strings.ToUpper(m[1])+m[3]+" "+m[2]+m[4])
			byHand++
		}
		byHand -= strings.Count(string(text), "HandleFunc(\"") + strings.Count(string(text), "Handle(\"") + strings.Count(string(text), "URL.Path ==")
	}
	if byHand != -1 { // /v1/ itself, which has no method, holds all of them
		t.Errorf("%d paths served by internal/server/rest are not read", -1-byHand)
	}
	return all
}

// changesNothing are routes that are no GET, and whose examples change nothing.
var changesNothing = []string{"POST /v1/statements:simulate", "POST /v1/webhooks/ops:test", "DELETE /v1/policy/shadow"} // no policy is on trial there

// audited is the number of the newest row of the audit log.
func (d *documented) audited() int64 {
	d.t.Helper()
	code, answer := d.call(d.admin, http.MethodGet, "/v1/audit?page_size=1", "")
	var log struct {
		Rows []struct {
			Number string `json:"number"`
		} `json:"rows"`
	}
	if err := json.Unmarshal([]byte(answer), &log); err != nil || code != http.StatusOK || len(log.Rows) != 1 {
		d.t.Fatalf("audit: %d %s, %v", code, answer, err)
	}
	n, err := strconv.ParseInt(log.Rows[0].Number, 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// Every call of examples/rest.sh can be made as it stands, in its order, there is one of each route, and whatever
// changes something is in the audit log.
func TestDocumentedRoutes(t *testing.T) {
	text, err := os.ReadFile("../../examples/rest.sh")
	if err != nil {
		t.Fatal(err)
	}
	all, lines := routes(t), regexp.MustCompile(`(?m)^call (GET|PUT|POST|DELETE) .*$`).FindAllString(string(text), -1)
	d := newDocumented(t)
	d.ok("apply", "-f", "quota.yaml")
	notYet := map[string]string{"/v1/statements:close": "has not ended", "/v1/statements:show": "no statement of tenant"}
	given := strings.NewReplacer("k7f3q", d.id, "1772445900000", fmt.Sprint(d.now.Truncate(ledger.DefaultSlot).UnixMilli()))
	var called [][2]string
	for _, line := range lines {
		words := append(shellWords(given.Replace(line)), "")
		method, path, body := words[1], words[2], words[3]
		route, _, _ := strings.Cut(path, "?")
		called = append(called, [2]string{method, route})
		key := d.admin
		if route == "/v1/ledger:backfill" {
			key = d.backfill
		}
		before := d.audited()
		code, answer := d.call(key, method, path, body)
		if method != http.MethodGet && code == http.StatusOK && d.audited() == before && !strings.Contains(body, `"dry_run": true`) && !slices.Contains(changesNothing, method+" "+route) {
			t.Errorf("%s: it left no row in the audit log; if it changes nothing, it is one of changesNothing", line)
		}
		if because := notYet[route]; code != http.StatusOK && (because == "" || !strings.Contains(answer, because)) {
			t.Errorf("%s: %d %s", line, code, answer)
		}
	}
	var shapes []*regexp.Regexp
	for _, route := range all {
		shape := regexp.QuoteMeta(route)
		shape = strings.ReplaceAll(shape, `\{id=\*\*\}`, `[^:]+`)
		shapes = append(shapes, regexp.MustCompile("^"+regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(shape, `[^/:]+`)+"$"))
	}
	for i, route := range all {
		if !slices.ContainsFunc(called, func(c [2]string) bool { return shapes[i].MatchString(c[0] + " " + c[1]) }) {
			t.Errorf("examples/rest.sh has no call of %s", route)
		}
	}
	if len(all) < 54 {
		t.Errorf("found only %d routes", len(all))
	}
}

// call makes a request by REST.
func (e *env) call(key, method, path, body string) (int, string) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, "http://"+e.s.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
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

// The table of docs/rest.md gives routes the parameters that they have, and of usage, statements, credits and
// alerts a body that they take.
func TestDocumentedParameters(t *testing.T) {
	text, err := os.ReadFile("../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, nil)
	e.ok("apply", "-f", e.file("next.yaml", documentedPolicy))
	e.ok("credit", "give", "acme", "5.00 USD", "--id", "autumn-acme")
	e.ok("alert", "test", "ops")
	call := func(method, path, body string) (int, string) { return e.call("", method, path, body) }
	told := map[string]bool{}
	route := regexp.MustCompile("`(GET|POST) (/v1/(?:usage|statements|credits|audit|alerts|webhooks)[^` ]*)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range route.FindAllStringSubmatch(cells[1], -1) {
			path, query, asks := strings.Cut(strings.NewReplacer("/ID:", "/autumn-acme:", "/NUMBER", "/1", "/NAME:", "/ops:").Replace(m[2]), "?")
			told[m[1]+" "+path] = true
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
	if !told["GET /v1/usage/export"] || len(told) < 12 {
		t.Errorf("routes: %v", told)
	}
}
