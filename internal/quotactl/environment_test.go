package quotactl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/flagenv"
	"github.com/f4ee788f/quota/internal/server/boot"
)

var flagNames = regexp.MustCompile(`\b(?:fs|f)\.(?:[A-Za-z0-9]*Var|String|Bool|Duration|Int|Int64|Func)\((?:&[\w.]+, )?"([a-z0-9-]+)"`)

// variablesOf are the variables of the flags that files of source define.
func variablesOf(t *testing.T, prefix string, files ...string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flagNames.FindAllStringSubmatch(string(text), -1) {
			all[flagenv.Name(prefix, m[1])] = true
		}
	}
	return all
}

// A variable means one thing: none is read by two binaries.
func TestAVariableMeansOneThing(t *testing.T) {
	server := variablesOf(t, "QUOTA", "internal/server/boot/config.go", "cmd/quota-server/main.go", "cmd/quota-server/retain.go")
	agent := variablesOf(t, "QUOTA_AGENT", "cmd/quota-agent/config.go")
	if !server["QUOTA_TLS_CERT"] || !server["QUOTA_ARCHIVE"] || !server["QUOTA_APP_PASSWORD"] || !agent["QUOTA_AGENT_HTTP_ADDR"] || len(server) < 20 || len(agent) < 15 {
		t.Fatalf("flags were not found in the sources: %v, %v", server, agent)
	}
	own := []string{serverVariable, keyVariable, caVariable, certVariable, certKeyVariable}
	for _, name := range own {
		if server[name] || agent[name] {
			t.Errorf("%s is quotactl's and another's", name)
		}
	}
	for name := range server {
		if strings.HasPrefix(name, "QUOTA_AGENT_") || agent[name] {
			t.Errorf("%s is quota-server's and quota-agent's", name)
		}
	}
	help := (&cli{}).root().PersistentFlags().FlagUsages()
	page, err := os.ReadFile("../../docs/quotactl.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range own {
		if !strings.Contains(help, name) || !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s is not in --help, or not in docs/quotactl.md", name)
		}
	}
	// loadtest and the SDK read none.
	for _, dir := range []string{"../../loadtest", "../../pkg"} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if m := regexp.MustCompile(`(?:Getenv|LookupEnv)\("QUOTA_\w*"`).Find(text); m != nil {
				t.Errorf("%s: %s", path, m)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A variable that is set to nothing is the empty value: of a server, that is none.
func TestAnEmptyServerIsNone(t *testing.T) {
	e := start(t, nil)
	e.args = nil
	t.Setenv(serverVariable, "")
	if _, errs, code := e.run("get", "plans"); code != exitUsage || !strings.Contains(errs, "it is empty") {
		t.Errorf("QUOTA_SERVER=: exit %d, %q", code, errs)
	}
}

// A key that is given as nothing is none: the variable is only for where none is given.
func TestAnEmptyKeyIsNone(t *testing.T) {
	e := start(t, func(c *boot.Config) { c.BootstrapAdminKey = "the-first-key-of-this-test" })
	t.Setenv(keyVariable, "the-first-key-of-this-test")
	e.ok("get", "plans")
	if out, errs, code := e.run("get", "plans", "--key="); code != exitFailed || !strings.Contains(errs, "Unauthenticated") {
		t.Errorf("--key= with QUOTA_KEY set: exit %d, %q, %q; want it refused", code, out, errs)
	}
}
