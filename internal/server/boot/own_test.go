package boot_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/server/boot"
)

// An embedded server's files are its own: new ones are made so, and those that were open are closed.
func TestFilesAreNobodyElses(t *testing.T) {
	c := embedded(t, policyText)
	c.DataDir = filepath.Join(t.TempDir(), "data")
	check := func(when string) {
		t.Helper()
		info, err := os.Stat(c.DataDir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: the directory is %v, %v, want 0700", when, info.Mode().Perm(), err)
		}
		entries, err := os.ReadDir(c.DataDir)
		if err != nil || len(entries) < 2 {
			t.Fatalf("%s: %d files, %v", when, len(entries), err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s is %v, want 0600", when, e.Name(), info.Mode().Perm())
			}
		}
	}
	n := start(t, c)
	check("new")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{c.DataDir: 0o755, filepath.Join(c.DataDir, "quota.db"): 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	n = start(t, c)
	check("opened to others before")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	// Nor does quota-server retain leave them open.
	if err := os.Chmod(filepath.Join(c.DataDir, "quota.db"), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := boot.OpenOwner(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	check("opened by the owner")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}

// A directory that others write to may hold any database by now.
func TestADirectoryOthersWriteToIsRefused(t *testing.T) {
	c := embedded(t, policyText)
	c.Log = slog.New(slog.DiscardHandler)
	c.DataDir = filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.DataDir, "somebody's"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.DataDir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := boot.New(t.Context(), c); err == nil || !strings.Contains(err.Error(), "may be written by others") {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := os.WriteFile(filepath.Join(c.DataDir, "quota.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := boot.OpenOwner(t.Context(), &c); err == nil || !strings.Contains(err.Error(), "may be written by others") {
		t.Errorf("to the owner: got %v, %v, want a refusal", o, err)
	}
}
