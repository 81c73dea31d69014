package quotactl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/quotactl/render"
	"github.com/f4ee788f/quota/internal/server/boot"
)

// What a terminal would act upon is escaped, in tables, sentences, errors and JSON; text in any script goes through.
func TestNothingReachesTheTerminalUnescaped(t *testing.T) {
	const bad = "a\x1b[31mred\u202egnp\x00\x7f\u0085\u2066\r\nb\tc\xff"
	var out, errs bytes.Buffer
	o := render.NewScreen(&out)
	c := &cli{Printer: render.Printer{Out: o, Err: render.NewScreen(&errs)}}
	list := &render.Table{Header: []string{"NAME", "NOTE"}}
	list.Add(bad, "x")
	if err := c.Write("table", list, nil); err != nil {
		t.Fatal(err)
	}
	c.Say("tenant %s\n", bad)
	if err := c.JSON(map[string]string{"name": "a\u202eb\u0085"}); err != nil {
		t.Fatal(err)
	}
	c.exit(errors.New(bad))
	for _, got := range []string{out.String(), errs.String()} {
		for _, r := range strings.ReplaceAll(got, "\n", "") {
			if display.Hidden(r) && r != '\t' {
				t.Errorf("%q reaches the terminal in %q", r, got)
			}
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 6 { // two lines of the table, a sentence, three of JSON
		t.Errorf("%d lines; a name made one of its own:\n%s", n, &out)
	}
	if !strings.Contains(out.String(), `a\u001b[31mred\u202egnp\u0000\u007f\u0085\u2066\u000d\u000ab\u0009c\xff`) {
		t.Errorf("the name is not told:\n%s", &out)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes()[strings.Index(out.String(), "{"):], &back); err != nil || back["name"] != "a\u202eb\u0085" {
		t.Errorf("JSON read back: %q, %v", back, err)
	}

	// A character whose bytes come one by one is one character.
	out.Reset()
	for _, b := range []byte("日本 Zürich é 🙂\xe6") {
		if _, err := o.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Close(); err != nil || out.String() != "日本 Zürich é 🙂"+`\xe6` {
		t.Errorf("byte by byte: %q, %v", out.String(), err)
	}
}

// Columns are aligned by what characters take on a terminal, not by how many they are.
func TestWideCharactersAlign(t *testing.T) {
	list := &render.Table{Header: []string{"TENANT", "UNITS", "NOTE"}, Numbers: map[int]bool{1: true}}
	list.Add("日本電気", "7", "ok")
	list.Add("Zu\u0308rich", "1234", "ｆ")
	list.Add("acme", "", "한글")
	var out strings.Builder
	if err := (&render.Printer{Out: &out}).Write("table", list, nil); err != nil {
		t.Fatal(err)
	}
	want := "TENANT    UNITS  NOTE\n日本電気      7  ok\nZu\u0308rich     1234  ｆ\nacme          -  한글\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// full is a device that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command whose answer cannot be written fails, whatever it prints; a key that nobody has read is revoked.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	e := start(t, func(c *boot.Config) { c.BootstrapAdminKey = "the-first-key-of-this-test" })
	t.Setenv("QUOTA_KEY", "the-first-key-of-this-test")
	next := e.file("next.yaml", strings.Replace(policyText, "100/hour", "150/hour", 1))
	for _, words := range [][]string{
		{"get", "plans"}, {"get", "plans", "-o", "json"}, {"get", "plans", "-o", "csv"}, {"get", "policy"}, {"usage"}, {"diff", "-f", next},
		{"tenant", "set-plan", "acme", "free"}, {"switch", "show"}, {"version", "--client"}, {"--help"}, {"completion", "bash"},
		{"statement", "preview", "--tenant", "acme", "-o", "html"}, {"ledger", "verify"}, {"key", "create", "--role", "viewer"}, {"key", "create", "--role", "viewer", "-o", "json"},
	} {
		var errs bytes.Buffer
		code := run(t.Context(), append(append([]string{}, e.args...), words...), Streams{In: strings.NewReader(""), Out: full{}, Err: &errs}, func() time.Time { return e.now })
		if code != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("quotactl %s: exit %d, %q; want 1 and why", strings.Join(words, " "), code, errs.String())
		}
	}
	var keys []struct{ Revoked bool }
	revoked := func(keys []struct{ Revoked bool }) (n int) {
		for _, k := range keys {
			if k.Revoked {
				n++
			}
		}
		return n
	}
	if err := json.Unmarshal([]byte(e.ok("key", "list", "-o", "json")), &keys); err != nil || len(keys) != 2 || revoked(keys) != 2 {
		t.Errorf("keys whose secrets were lost: %+v, %v; want two, both revoked", keys, err)
	}
	if f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		defer f.Close()
		if code := Main(context.Background(), []string{"version", "--client"}, Streams{Out: f, Err: &bytes.Buffer{}}); code != exitFailed {
			t.Errorf("/dev/full: exit %d", code)
		}
	}
}

// Every command answers as JSON.
func TestEveryCommandAnswersAsJSON(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() || cmd.CommandPath() == "quotactl usage export" { // whose --output is the file
			return
		}
		if f := cmd.Flags().Lookup("output"); f == nil || f.Value.Set("json") != nil {
			t.Errorf("%s does not answer as JSON", cmd.CommandPath())
		}
	}
	walk((&cli{Printer: render.Printer{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}}).root())
	if page, err := os.ReadFile("../../docs/quotactl.md"); err != nil || !strings.Contains(string(page), "Every command but `usage export`") {
		t.Errorf("docs/quotactl.md does not name the exception (%v)", err)
	}

	e := start(t, func(c *boot.Config) { c.BootstrapAdminKey = "the-first-key-of-this-test" })
	t.Setenv("QUOTA_KEY", "the-first-key-of-this-test")
	e.args = append(e.args, "-o", "json")
	next := e.file("next.yaml", strings.Replace(policyText, "100/hour", "150/hour", 1))
	for _, words := range [][]string{
		{"diff", "-f", next}, {"apply", "-f", next, "--shadow"}, {"shadow", "show"}, {"shadow", "promote"}, {"shadow", "clear"}, {"rollback", "1"}, {"apply", "-f", next},
		{"tenant", "create", "globex", "--plan", "paid"}, {"tenant", "set-plan", "globex", "free", "--at", "2099-01-01"}, {"tenant", "plans", "globex"},
		{"tenant", "keep-plan", "globex", "--at", "2099-01-01"}, {"tenant", "suspend", "globex"}, {"tenant", "resume", "globex"}, {"tenant", "get", "globex"},
		{"credit", "give", "acme", "5.00 USD", "--id", "c1"}, {"credit", "list", "acme"}, {"credit", "void", "c1", "--reason", "x"},
		{"key", "create", "--role", "viewer"}, {"key", "list"}, {"switch", "show"}, {"switch", "deny", "x"}, {"switch", "undeny", "x"}, {"switch", "set", "--mode", "normal"},
		{"version"}, {"version", "--client"}, {"get", "policy"}, {"get", "versions"}, {"get", "plans"}, {"get", "tenants"}, {"get", "agents"}, {"audit"}, {"usage"},
		{"usage", "report"}, {"usage", "top"}, {"statement", "preview", "--tenant", "acme"}, {"statement", "list", "acme"}, {"ledger", "verify"}, {"ledger", "rebuild"},
		{"ledger", "reconcile"}, {"ledger", "corrections"}, {"ledger", "quarantine", "list"}, {"alert", "list"},
	} {
		if out := e.ok(words...); !json.Valid([]byte(out)) {
			t.Errorf("quotactl %s -o json printed %q", strings.Join(words, " "), out)
		}
	}
}
