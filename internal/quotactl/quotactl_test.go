package quotactl

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	"github.com/f4ee788f/quota/internal/server/boot"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policyText = `plans:
  free:
    limits:
      - {name: requests, by: [tenant], rate: 100/hour, burst: 200, meter: requests}
      - {name: by-endpoint, by: [tenant, endpoint], meter: calls}
  paid:
    limits:
      - {name: requests, by: [tenant], rate: 10/30s, meter: requests}
    price: {monthly: 49.00 USD, meters: {requests: {included: 10, unit: 0.05}}}
default_plan: free
tenants:
  - {id: acme, plan: paid}
`

// env is a server and a quotactl that talks to it.
type env struct {
	t    *testing.T
	s    *boot.Server
	args []string // before the command's own
	dir  string
	now  time.Time
}

// awayFromEdges waits for the next slot where this one may end before a test does: what a test settles, and what its
// plans and credits say of it, is of one slot, and so of one month.
func awayFromEdges() {
	if left := time.Until(time.Now().Truncate(ledger.DefaultSlot).Add(ledger.DefaultSlot)); left < 20*time.Second {
		time.Sleep(left)
	}
}

func start(t *testing.T, change func(*boot.Config)) *env {
	t.Helper()
	// The machine's settings must not reach the test.
	for _, name := range []string{"QUOTA_SERVER", "QUOTA_KEY", "QUOTA_CLIENT_CA", "QUOTA_CLIENT_CERT", "QUOTA_CLIENT_KEY"} {
		t.Setenv(name, "") // so that it is put back
		os.Unsetenv(name)
	}
	awayFromEdges()
	e := &env{t: t, dir: t.TempDir(), now: time.Now()}
	c := boot.Embedded(t.TempDir(), e.file("quota.yaml", policyText))
	c.Log = slog.New(slog.DiscardHandler)
	if change != nil {
		change(&c)
	}
	s, err := boot.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	e.s, e.args = s, []string{"--server", s.GRPCAddr()}
	return e
}

func (e *env) file(name, text string) string {
	e.t.Helper()
	path := filepath.Join(e.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return path
}

// run runs a command line, in words, and returns what it printed and its exit code.
func (e *env) run(words ...string) (out, errs string, code int) {
	e.t.Helper()
	var o, s bytes.Buffer
	code = run(e.t.Context(), append(append([]string{}, e.args...), words...), Streams{In: strings.NewReader(""), Out: &o, Err: &s}, func() time.Time { return e.now })
	return o.String(), s.String(), code
}

// ok runs a command that has to succeed, and returns what it printed.
func (e *env) ok(words ...string) string {
	e.t.Helper()
	out, errs, code := e.run(words...)
	if code != exitOK {
		e.t.Fatalf("quotactl %s: exit %d: %s", strings.Join(words, " "), code, errs)
	}
	return out
}

var stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// want compares output, with the file's directory and times made the same everywhere.
func (e *env) want(what, got, want string) {
	e.t.Helper()
	got = stamps.ReplaceAllString(strings.ReplaceAll(got, e.dir+string(filepath.Separator), ""), "TIME")
	if got != want {
		e.t.Errorf("%s printed\n%s\nwant\n%s", what, got, want)
	}
}

// Every change is in the log, with what was before and after it.
func TestAudit(t *testing.T) {
	e := start(t, nil)
	e.ok("tenant", "set-plan", "acme", "free")
	e.want("audit", e.ok("audit", "--object", "acme"), `NUMBER  TIME                  ACTOR        ACTION           OBJECT  BEFORE           AFTER
     3  TIME  open         tenant.set-plan  acme    {"plan":"paid"}  {"plan":"free"}
     1  TIME  policy file  tenant.apply     acme    -                {"plan":"paid"}
`)
	e.want("audit of an action", e.ok("audit", "--action", "tenant.set", "--limit", "1", "-o", "csv"), "number,time,actor,action,object,before,after\n3,TIME,open,tenant.set-plan,acme,\"{\"\"plan\"\":\"\"paid\"\"}\",\"{\"\"plan\"\":\"\"free\"\"}\"\n")
	if out := e.ok("audit", "--actor", "nobody", "-o", "json"); out != "[]\n" {
		t.Errorf("of nobody: %s", out)
	}
	if _, errs, code := e.run("audit", "--limit", "0"); code != 2 || !strings.Contains(errs, "at least 1") {
		t.Errorf("none: exit %d, %s", code, errs)
	}
}

func TestPolicyCommands(t *testing.T) {
	e := start(t, nil)
	e.want("diff of the same", e.ok("diff", "-f", e.file("same.yaml", "# the same\n"+policyText)), "no difference from version 1\n")

	next := e.file("next.yaml", strings.Replace(policyText, "100/hour", "150/hour", 1))
	changes := "plan free: limit requests: rate 100/hour → 150/hour\n"
	e.want("diff", e.ok("diff", "-f", next), changes)
	if out, _, code := e.run("diff", "-f", next, "--exit-code"); code != 1 || out != changes {
		t.Errorf("diff --exit-code: got exit %d and %q, want 1 and the changes", code, out)
	}
	e.want("a dry run", e.ok("apply", "-f", next, "--dry-run"), changes+"dry run: version 1 stays in force\n")
	e.want("apply", e.ok("apply", "-f", next), changes+"version 2 is in force\n")
	e.want("apply again", e.ok("apply", "-f", next), "nothing to change: version 2 is in force\n")
	e.want("get policy --version", e.ok("get", "policy", "--version", "1"), policyText)
	if out, errs, code := e.run("apply", "-f", e.dir+"/quota.yaml", "--base", "1"); code != 1 || out != "" || !strings.Contains(errs, "another version is in force") {
		t.Errorf("apply on another base: got exit %d, %q, %q, want a refusal", code, out, errs)
	}
	e.want("rollback", e.ok("rollback", "1"), "plan free: limit requests: rate 150/hour → 100/hour\nversion 3 is in force; it says what version 1 said\n")
	e.want("get versions", e.ok("get", "versions", "-o", "csv"), "version,state,author,created\n3,in force,open,TIME\n2,,open,TIME\n1,,policy file,TIME\n")

	bad := e.file("bad.yaml", "plans:\n  free:\n    limits:\n      - {name: a, rate: 1/m}\n    pricing: 3\n")
	out, errs, code := e.run("apply", "-f", bad)
	e.want("apply of a faulty file", errs, `bad.yaml:4: plan free: limit a: invalid rate "1/m": "m" could be a minute or a month; write minute or month
bad.yaml:5: unknown key "pricing" in plan free; allowed are limits, price, spending_cap
quotactl: nothing was changed
`)
	if out != "" || code != 1 {
		t.Errorf("apply of a faulty file: got exit %d and %q, want 1 and nothing", code, out)
	}
	odd := e.file("odd.yaml", "limits:\n  - {name: odd, by: [tenant], rate: 1/minute, deny: {user: \"2001:0db8*\",\n     ip: [\"2001:db8*\", \"2001:0db8*\"]}}\nplans:\n  free: {}\n  paid: {}\n")
	out, errs, code = e.run("apply", "-f", odd, "--dry-run")
	e.want("apply of a prefix that no address begins with", errs, `odd.yaml:3: warning: limit odd: no address begins with 2001:0db8: a prefix is one of an address's shortest form (RFC 5952), `+
		`in which 2001:0db8:0:0::1 is 2001:db8::1; write such a prefix, or a block such as 2001:db8::/32
quotactl: warning: the policy file quota.yaml rules on this server, and says otherwise: it is applied again when it changes and at the next start `+
		`(servers that share a ledger do not start with it); write the change into it, or start without --policy
`)
	if !strings.Contains(out, "dry run") || code != 0 {
		t.Errorf("apply of a prefix that no address begins with: got exit %d and %q, want 0 and that it was a dry run", code, out)
	}
	binary := e.file("binary.yaml", "plans: \xff")
	if _, errs, code := e.run("apply", "-f", os.DevNull); code != 1 || errs != "quotactl: "+os.DevNull+": this is empty, and a policy is not\n" {
		t.Errorf("an empty file: got exit %d and %q, want 1 and that it is empty", code, errs)
	}
	if _, errs, code := e.run("apply", "-f", binary); code != 1 || errs != "quotactl: "+binary+": this is not UTF-8 text, as a policy has to be\n" {
		t.Errorf("apply of a file that is no text: got exit %d and %q, want 1 and the reason", code, errs)
	}
	e.want("get policy after it", e.ok("get", "policy"), policyText)
}

func TestShadowCommands(t *testing.T) {
	e := start(t, nil)
	next := e.file("next.yaml", strings.Replace(policyText, "100/hour", "50/hour", 1))
	change := "plan free: limit requests: rate 100/hour → 50/hour\n"
	e.want("nothing to try", e.ok("apply", "--shadow", "-f", e.file("same.yaml", policyText)), "nothing to try: the version in force says the same\n")
	e.want("a dry run", e.ok("apply", "--shadow", "--dry-run", "-f", next), change+"dry run: nothing else is tried\n")
	if _, errs, code := e.run("shadow", "show"); code != 1 || !strings.Contains(errs, "no shadow policy is tried") {
		t.Errorf("no shadow: exit %d, %q", code, errs)
	}
	e.want("a trial", e.ok("apply", "--shadow", "-f", next), change+"version 2 is tried beside the one in force\n")
	e.want("again", e.ok("apply", "--shadow", "-f", next), change+"nothing to change: version 2 is tried already\n")
	if out := e.ok("shadow", "show"); !strings.Contains(out, "50/hour") {
		t.Errorf("shadow show printed %q", out)
	}
	e.want("get versions", e.ok("get", "versions", "-o", "csv"), "version,state,author,created\n2,shadow,open,TIME\n1,in force,policy file,TIME\n")

	// What the shadow counted is no usage, and is told when it is asked for.
	slot := e.now.Truncate(time.Hour).Unix()
	e.settle(
		ledger.Row{Slot: slot, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 9090, Denied: 1},
		ledger.Row{Slot: slot, Tenant: "acme", Limit: "requests", Version: 2, Admitted: 50, Denied: 4141},
	)
	if out := e.ok("usage", "--by", "limit"); !strings.Contains(out, "  9090") || strings.Contains(out, "4141") {
		t.Errorf("usage printed\n%s\nwant what version 1 counted alone", out)
	}
	for _, words := range [][]string{{"usage", "--shadow"}, {"usage", "--shadow", "--shadow-version", "2", "--by", "limit"}} {
		if out := e.ok(words...); !strings.Contains(out, "4141") || !strings.Contains(out, "requests") || strings.Contains(out, "9090") {
			t.Errorf("%q printed\n%s\nwant what version 2 counted alone", words, out)
		}
	}
	if _, errs, code := e.run("usage", "--shadow", "--shadow-version", "1"); code != 1 || !strings.Contains(errs, "version 1 was not tried") {
		t.Errorf("usage of a version that was in force: exit %d, %q", code, errs)
	}
	if _, errs, code := e.run("shadow", "promote", "--version", "9"); code != 1 || !strings.Contains(errs, "version 2 is tried, not 9") {
		t.Errorf("promoting another version: exit %d, %q", code, errs)
	}
	e.want("clear", e.ok("shadow", "clear"), "version 2 is tried no longer\n")
	e.want("clear again", e.ok("shadow", "clear"), "no shadow is tried\n")
	e.ok("apply", "--shadow", "-f", next)
	e.want("promote", e.ok("shadow", "promote"), change+"version 4 is in force; no shadow is tried\n")
	e.want("get versions", e.ok("get", "versions", "-o", "csv"),
		"version,state,author,created\n4,in force,open,TIME\n3,was shadow,open,TIME\n2,was shadow,open,TIME\n1,,policy file,TIME\n")
}

func TestGetPlans(t *testing.T) {
	e := start(t, nil)
	e.want("get plans", e.ok("get", "plans"), `PLAN            LIMIT        RATE      BURST  ALGORITHM     BY        MATCH  METER     OPTIONS
free (default)  requests     100/hour    200  token_bucket  -         -      requests  -
free (default)  by-endpoint  -             0  token_bucket  endpoint  -      calls     -
paid            requests     10/30s       10  token_bucket  -         -      requests  -
paid costs 49.00 USD a month; requests 10 included, 0.05 each
`)
	e.ok("apply", "-f", e.file("top.yaml", "limits:\n  - {name: login, match: {endpoint: [\"POST /login*\", \"GET /login\"], user: \"*\"}, by: [ip], rate: 5/minute}\n"+policyText))
	if out := e.ok("get", "plans"); !strings.Contains(out, "(every plan)    login        5/minute      5  token_bucket  ip        endpoint: [\"POST /login*\", \"GET /login\"], user: [\"*\"]  -         -\n") {
		t.Errorf("get plans with a limit of every plan: got\n%s", out)
	}
	if out := e.ok("get", "plans", "-o", "csv"); !strings.HasPrefix(out, "plan,limit,rate,burst,algorithm,by,match,meter,options\n,login,5/minute,5,token_bucket,ip,\"endpoint: [\"\"POST /login*\"\", ") {
		t.Errorf("get plans -o csv with a limit of every plan: got\n%s", out)
	}
	var plans struct {
		Limits []struct {
			Name  string
			Match []struct{ Attribute string }
		}
		Plans []struct {
			Name   string
			Limits []struct{ Name string }
		}
		Default string `json:"default_plan"`
		Prices  map[string]string
	}
	if err := json.Unmarshal([]byte(e.ok("get", "plans", "-o", "json")), &plans); err != nil || len(plans.Plans) != 2 || len(plans.Limits) != 1 || len(plans.Limits[0].Match) != 2 || plans.Default != "free" || len(plans.Prices) != 1 {
		t.Errorf("get plans -o json: got %+v, %v, want two plans, default free", plans, err)
	}
}

func TestTenantCommands(t *testing.T) {
	e := start(t, nil)
	e.want("tenant create", e.ok("tenant", "create", "acme/web", "--plan", "free", "--parent", "acme"), "tenant acme/web has the plan free, under acme (revision 2)\n")
	e.want("tenant set-plan", e.ok("tenant", "set-plan", "acme/web", "paid"), "tenant acme/web has the plan paid, under acme (revision 3)\n")
	e.want("tenant suspend", e.ok("tenant", "suspend", "acme/web"), "tenant acme/web has the plan paid, under acme, and is suspended (revision 4)\n")
	e.want("tenant resume", e.ok("tenant", "resume", "acme/web"), "tenant acme/web has the plan paid, under acme (revision 5)\n")
	e.want("get tenants", e.ok("get", "tenants"), `TENANT    PLAN  PARENT  OVERRIDES  SUSPENDED  REVISION
acme      paid  -       -          -                 1
acme/web  paid  acme    -          -                 5
`)
	for _, c := range []struct {
		words []string
		want  string
		code  int
	}{
		{[]string{"tenant", "create", "acme", "--plan", "free"}, "already exists", 1},
		{[]string{"tenant", "create", "x", "--plan", "gold"}, "gold", 1},
		{[]string{"tenant", "create", "x"}, "--plan", 2},
		{[]string{"tenant", "set-plan", "nobody", "free"}, "not found", 1},
		{[]string{"tenant", "set-plan", "acme"}, "takes ID PLAN", 2},
		{[]string{"tenant", "destroy", "acme"}, "unknown command", 2},
		{[]string{"tenant", "suspend", "nobody"}, "not found", 1},
		{[]string{"switch", "deny"}, "takes one TENANT or more", 2},
		{[]string{"switch", "set", "--mode", "off"}, "--mode must be", 2},
	} {
		if _, errs, code := e.run(c.words...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("quotactl %s: got exit %d, %q, want %d and %q", strings.Join(c.words, " "), code, errs, c.code, c.want)
		}
	}
}

func TestKeysAndSwitches(t *testing.T) {
	const first = "the-first-key-of-this-test"
	e := start(t, func(c *boot.Config) { c.BootstrapAdminKey = first })
	if _, errs, code := e.run("key", "list"); code != 1 || !strings.Contains(errs, "a key is needed") {
		t.Errorf("without a key: got exit %d, %q, want 1 and that a key is needed", code, errs)
	}
	t.Setenv("QUOTA_KEY", first)
	secret := strings.TrimSpace(e.ok("key", "create", "--role", "operator", "--note", "on call"))
	id := strings.Split(secret, "_")[1]
	e.ok("key", "create", "--role", "agent", "--agent", "gw-1")
	list := e.ok("key", "list")
	if strings.Contains(list, secret) || !strings.Contains(list, "on call") || !strings.Contains(list, "gw-1") {
		t.Errorf("key list printed\n%s\nwant two keys and no secret", list)
	}
	e.ok("key", "create", "--role", "agent", "--agent", "gw-2", "--tenant", "acme", "--subtree", "--limit", "requests", "--expires", "1h")
	next := strings.TrimSpace(e.ok("key", "rotate", id, "--overlap", "1h"))
	if list := e.ok("key", "list"); !strings.Contains(list, "tenants acme and below; limits requests") || strings.Count(list, "operator") != 2 {
		t.Errorf("key list printed\n%s\nwant what the agent's key is for, and the operator's successor", list)
	}
	if _, errs, code := e.run("switch", "get", "--key", next); code != 0 {
		t.Errorf("the successor: exit %d, %s", code, errs)
	}

	e.args = append(e.args, "--key", secret) // the flag wins over the environment
	if _, errs, code := e.run("key", "list"); code != 1 || !strings.Contains(errs, "PermissionDenied") {
		t.Errorf("an operator lists keys: got exit %d, %q, want PermissionDenied", code, errs)
	}
	e.want("switch get", e.ok("switch", "get"), "mode: normal\ndenied tenants: -\n")
	e.want("switch set", e.ok("switch", "set", "--mode", "shadow-all", "--deny", "mallory,trudy"), "mode: shadow_all\ndenied tenants: mallory, trudy\n")
	e.want("switch set of one", e.ok("switch", "set", "--mode", "normal"), "mode: normal\ndenied tenants: mallory, trudy\n")
	e.want("switch set of nobody", e.ok("switch", "set", "--deny", ""), "mode: normal\ndenied tenants: -\n")
	e.want("switch deny", e.ok("switch", "deny", "trudy", "mallory"), "mode: normal\ndenied tenants: mallory, trudy\n")
	e.want("switch undeny", e.ok("switch", "undeny", "trudy"), "mode: normal\ndenied tenants: mallory\n")
	e.want("switch show", e.ok("switch", "show"), "mode: normal\ndenied tenants: mallory\n")
	e.want("switch set of a mode", e.ok("switch", "set", "--mode", "allow_all"), "mode: allow_all\ndenied tenants: mallory\n")

	// One of several servers that is away keeps nobody from telling the others, and fails the command.
	one := e.args[1]
	e.args[1] = "127.0.0.1:1," + one
	out, errs, code := e.run("switch", "undeny", "mallory")
	if out != "server "+one+"\nmode: allow_all\ndenied tenants: -\n" || code != 1 || !strings.Contains(errs, "127.0.0.1:1: ") || !strings.Contains(errs, "1 of 2 servers did not answer") {
		t.Errorf("one server away: got exit %d, %q, %q", code, out, errs)
	}
	if e.ok("get", "plans") == "" {
		t.Error("the server that is there was not asked")
	}
	e.args[1] = one

	e.args = e.args[:len(e.args)-2]
	if out := e.ok("key", "revoke", id); !strings.Contains(out, id+" is revoked since") {
		t.Errorf("key revoke printed %q", out)
	}
	e.args = append(e.args, "--key", secret)
	if _, errs, code := e.run("switch", "get"); code != 1 || !strings.Contains(errs, "revoked") {
		t.Errorf("a revoked key: got exit %d, %q, want that it is revoked", code, errs)
	}
}

// settle brings usage into the ledger: two hours of acme.
func (e *env) settle(rows ...ledger.Row) {
	e.t.Helper()
	conn, err := grpc.NewClient(e.s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	api := quotav1.NewLeaseServiceClient(conn)
	for _, row := range rows { // what an agent has without a lease it tells first
		if row.Limit != "requests" || row.Meter == "" {
			continue
		}
		told := &quotav1.RenewRequest{Agent: "gw-1", Epoch: 1, Renewals: []*quotav1.Renewal{{Tenant: row.Tenant, Limit: row.Limit, Number: 1, Began: 1, Admitted: row.Admitted}}}
		if resp, err := api.Renew(e.t.Context(), told); err != nil || resp.Grants[0].Status != quotav1.Grant_STATUS_GRANTED {
			e.t.Fatalf("renew: %v, %v", resp, err)
		}
	}
	e.report(api, ledger.NewReport("gw-1", 1, 1, 0, rows, e.now.UnixMilli(), false))
}

// report settles one.
func (e *env) report(api quotav1.LeaseServiceClient, r ledger.Report) {
	e.t.Helper()
	resp, err := api.Settle(e.t.Context(), &quotav1.SettleRequest{Reports: []*quotav1.Report{wire.ReportToProto(r)}})
	if err != nil || resp.Receipts[0].Status != quotav1.Receipt_STATUS_SETTLED {
		e.t.Fatalf("settle: %v, %v", resp, err)
	}
}

func TestUsage(t *testing.T) {
	e := start(t, nil)
	e.want("usage of nothing", e.ok("usage", "--tenant", "acme"), "TENANT  ADMITTED  OVERAGE  DENIED\nno usage\ncomplete through: nothing was settled yet\n")

	hour := e.now.Truncate(time.Hour)
	before := hour.Add(-time.Hour)
	e.settle(
		ledger.Row{Slot: before.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 1200, Denied: 7},
		ledger.Row{Slot: hour.Unix(), Tenant: "acme", Limit: "requests", Meter: "requests", Version: 1, Admitted: 34, Overage: 4},
		ledger.Row{Slot: hour.Unix(), Tenant: "globex", Limit: "by-endpoint", Meter: "calls", Version: 1, Attributes: "endpoint=GET /a,\"b\"", Admitted: 5},
	)
	e.want("usage", e.ok("usage", "--tenant", "acme"), "TENANT  ADMITTED  OVERAGE  DENIED\nacme        1234        4       7\ncomplete through TIME\n")
	h := func(at time.Time) string { return at.UTC().Format("2006-01-02T15:04Z") }
	e.want("usage --by hour", e.ok("usage", "--tenant", "acme", "--by", "hour", "--from", "-25h"),
		"TENANT  HOUR               ADMITTED  OVERAGE  DENIED\n"+
			"acme    "+h(before)+"      1200        0       7\n"+
			"acme    "+h(hour)+"        34        4       0\n"+
			"acme    total                  1234        4       7\n"+
			"complete through TIME\n")
	e.want("usage --by limit", e.ok("usage", "--tenant", "globex", "--by", "limit"),
		"TENANT  LIMIT        METER  ADMITTED  OVERAGE  DENIED\nglobex  by-endpoint  calls         5        0       0\ncomplete through TIME\n")
	out, errs, code := e.run("usage", "--tenant", "globex", "--by", "attribute", "-o", "csv")
	e.want("usage -o csv", out, "tenant,limit,meter,attributes,admitted,overage,denied\nglobex,by-endpoint,calls,\"endpoint=GET /a,\"\"b\"\"\",5,0,0\n")
	e.want("usage -o csv, beside it,", errs, "complete through TIME\n")
	if code != 0 {
		t.Errorf("usage -o csv: exit %d", code)
	}
	var answer struct {
		Tenant, By string
		Rows       []struct {
			Hour                      string
			Admitted, Overage, Denied int64
		}
		Complete time.Time `json:"complete_through"`
		Lagging  []string
	}
	if err := json.Unmarshal([]byte(e.ok("usage", "--tenant", "acme", "--by", "hour", "-o", "json")), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Rows) != 2 || answer.Rows[0].Hour != h(before) || answer.Rows[0].Admitted != 1200 || answer.Rows[0].Denied != 7 || answer.Complete.IsZero() || answer.Lagging == nil {
		t.Errorf("usage -o json: got %+v, want two hours, the first with 1200 admitted, and through when it is complete", answer)
	}
	e.want("usage of a time", e.ok("usage", "--tenant", "acme", "--from", hour.UTC().Format(time.RFC3339), "--to", "now"), "TENANT  ADMITTED  OVERAGE  DENIED\nacme          34        4       0\ncomplete through TIME\n")
	e.want("get agents", e.ok("get", "agents", "-o", "csv"), "agent,epoch,state,reports,units,through,seen,key,why\ngw-1,1,open,1,1239,TIME,TIME,,\n")
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"usage", "--by", "fortnight"}, "--by must be"},
		{[]string{"usage", "--from", "yesterday"}, "is not a time"},
		{[]string{"usage", "--from", "now", "--to", "-1h"}, "is not before"},
		{[]string{"usage", "--zone", "Middle/Earth"}, "is not a time zone"},
		{[]string{"usage", "-o", "xml"}, "table, json or csv"},
		{[]string{"usage", "acme"}, "takes no arguments"},
		{[]string{"frobnicate"}, "unknown command"},
		{[]string{"get", "plans", "--server", "127.0.0.1"}, "write HOST:PORT"},
		{[]string{"get", "plans", "--server", "a:7600,b"}, "write HOST:PORT"},
		{[]string{"get", "plans", "--server", "127.0.0.1:76000"}, "write HOST:PORT"},
		{[]string{"get", "plans", "--timeout", "0s"}, "must be above 0"},
		{[]string{"get"}, ""},
	} {
		_, errs, code := e.run(c.words...)
		if want := map[bool]int{true: exitOK, false: exitUsage}[c.want == ""]; code != want || !strings.Contains(errs, c.want) {
			t.Errorf("quotactl %s: got exit %d, %q, want %d and %q", strings.Join(c.words, " "), code, errs, want, c.want)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	e := start(t, nil)
	if out := e.ok("version"); !strings.Contains(out, "quotactl ") || !strings.Contains(out, "leases in memory, ledger in sqlite") {
		t.Errorf("version printed %q", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := e.ok("completion", shell); !strings.Contains(out, "quotactl") {
			t.Errorf("completion %s printed %d bytes that do not name quotactl", shell, len(out))
		}
	}
	e.args = []string{"--server", "127.0.0.1:1", "--timeout", "2s"}
	if out, errs, code := e.run("version"); code != 1 || !strings.Contains(errs, "no server answers at 127.0.0.1:1") || !strings.Contains(out, "quotactl ") {
		t.Errorf("version without a server: got exit %d, %q, %q", code, out, errs)
	}
	e.ok("version", "--client")
}

// A cell without a value is a dash for people, and nothing for programs.
func TestEmptyCells(t *testing.T) {
	list := &render.Table{Header: []string{"KEY", "AGENT"}}
	list.Add("k1", "")
	for f, want := range map[render.Format]string{"table": "KEY  AGENT\nk1   -\n", "csv": "key,agent\nk1,\n"} {
		var out strings.Builder
		if err := (&render.Printer{Out: &out}).Write(f, list, nil); err != nil || out.String() != want {
			t.Errorf("%s: got %q, %v, want %q", f, out.String(), err, want)
		}
	}
}

func TestUnreachedInPlainWords(t *testing.T) {
	for message, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:                                                                        "dial tcp 127.0.0.1:1: connect: connection refused",
		`connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`: "what listens there speaks HTTP/1.1; give the server's --grpc-addr",
		`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`:                                                         "it does not use TLS (leave out --tls, --tls-ca and --tls-cert)",
		`connection error: desc = "error reading server preface: EOF"`:                                                                                                                        "error reading server preface: EOF (a server with TLS is asked with --tls or --tls-ca)",
		`name resolver error: produced zero addresses`:                                                                                                                                        "the name has no address",
		`unavailable: no policy was applied yet`:                                                                                                                                              "",
	} {
		if got := unreached(message); got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
}

func TestParseWhen(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 29, 12, 0, 0, 0, berlin) // the day the clocks went forward
	for _, c := range []struct{ in, want string }{
		{"", "0001-01-01T00:00:00Z"},
		{"now", "2026-03-29T10:00:00Z"},
		{"-24h", "2026-03-28T10:00:00Z"},
		{"-1d", "2026-03-28T11:00:00Z"}, // the same time of the day before
		{"-90m", "2026-03-29T08:30:00Z"},
		{"2026-03-29", "2026-03-28T23:00:00Z"},
		{"2026-03-29T08:00:00+02:00", "2026-03-29T06:00:00Z"},
		{"24h", ""}, {"-x", ""}, {"2026-13-01", ""}, {"-999999999999d", ""},
	} {
		got, err := parseWhen(c.in, now, berlin)
		if c.want == "" {
			if err == nil {
				t.Errorf("%q: got %s, want a refusal", c.in, got)
			}
			continue
		}
		if err != nil || got.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%q: got %s, %v, want %s", c.in, got.UTC().Format(time.RFC3339), err, c.want)
		}
	}
}
