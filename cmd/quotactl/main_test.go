package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/quotactl"
	"github.com/f4ee788f/quota/internal/server/boot"
)

// asQuotactl has this program be quotactl.
const asQuotactl = "QUOTACTL_OF_A_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asQuotactl) != "" {
		main()
	}
	os.Exit(m.Run())
}

// Whoever reads the answer may be gone: quotactl does not die of it, but fails, and a key that nobody has read is revoked.
func TestAnswersThatNobodyReads(t *testing.T) {
	c := boot.Embedded(t.TempDir(), "../../examples/alerts.yaml")
	c.Log = slog.New(slog.DiscardHandler)
	c.BootstrapAdminKey = "the-first-key-of-this-test"
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
	t.Setenv("QUOTA_SERVER", s.GRPCAddr())
	t.Setenv("QUOTA_KEY", c.BootstrapAdminKey)
	for _, words := range [][]string{{"key", "create", "--role", "viewer"}, {"get", "plans"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), os.Args[0], words...)
		cmd.Env = append(os.Environ(), asQuotactl+"=1")
		cmd.Stdout, cmd.Stderr = w, &errs
		err = cmd.Run()
		_ = w.Close()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(errs.String(), "broken pipe") {
			t.Errorf("quotactl %s: %v, %q; want exit 1 and why", strings.Join(words, " "), err, errs.String())
		}
	}
	var out bytes.Buffer
	if code := quotactl.Main(t.Context(), []string{"key", "list", "-o", "json"}, quotactl.Streams{Out: &out, Err: io.Discard}); code != 0 {
		t.Fatalf("key list: exit %d", code)
	}
	var keys []struct{ Revoked bool }
	if err := json.Unmarshal(out.Bytes(), &keys); err != nil || len(keys) != 1 || !keys[0].Revoked {
		t.Errorf("keys: %s, %v; want one, revoked", out.String(), err)
	}
}
