package quotactl

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestAlertCommands(t *testing.T) {
	e := start(t, nil)
	e.ok("apply", "-f", e.file("next.yaml", documentedPolicy))
	e.want("test", e.ok("alert", "test", "ops"), "alert 1 is on its way to ops: quotactl alert show 1\n")
	e.ok("alert", "test", "ops")
	if out := e.ok("alert", "list", "-o", "csv"); !strings.HasPrefix(out, "number,time,alert,tenant,threshold,period,used,of,action\n2,") || !strings.Contains(out, "\n1,") {
		t.Error(out)
	}
	if out := e.ok("alert", "list", "--after", "1", "-o", "json"); !strings.Contains(out, `"number": 2`) || strings.Contains(out, `"number": 1,`) {
		t.Error(out)
	}
	if out := e.ok("alert", "list", "--state", "delivered"); strings.Contains(out, "test") {
		t.Error(out)
	}
	if out := e.ok("alert", "retry", "1"); !strings.Contains(out, "ops") || !strings.Contains(out, "pending") {
		t.Error(out)
	}
	// Nobody has set the secret: the attempt fails for that.
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(e.ok("alert", "show", "1"), "the secret of variable QUOTA_WEBHOOK_OPS: there is none") {
		if time.Now().After(deadline) {
			t.Fatal(e.ok("alert", "show", "1"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	for words, want := range map[string]string{
		"show": "takes NUMBER", "show x": "is no number", "show 99": "alert 99", "retry 99": "alert 99", "retry 1 --webhook none": "has no delivery to \"none\"", "test none": "no webhook \"none\"",
		"list --state lost": "it must be pending, delivered or dead", "list --follow --alert x": "goes with --after", "list --limit 0": "at least 1",
	} {
		if _, errs, code := e.run(append([]string{"alert"}, strings.Fields(words)...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("alert %s: exit %d, %q, want %q", words, code, errs, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out lineWriter
	out.when = func(line string) {
		if strings.HasPrefix(line, "2 ") {
			cancel() // as an interrupt does
		}
	}
	if code := Main(ctx, []string{"--server", e.s.GRPCAddr(), "alert", "list", "--follow"}, Streams{Out: &out, Err: &out}); code != 0 || !strings.HasPrefix(out.text, "1 ") {
		t.Errorf("follow: exit %d, %q", code, out.text)
	}
}

// lineWriter tells of each line.
type lineWriter struct {
	text string
	when func(string)
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.text += string(b)
	w.when(string(b))
	return len(b), nil
}
