package alert

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/policy"
)

// A document may name any file: one that never ends, or that nobody writes to, holds up
// nothing and fills no memory.
func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	secret := secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, minSecret))
	pipe, good, link, long := filepath.Join(dir, "pipe"), filepath.Join(dir, "good"), filepath.Join(dir, "link"), filepath.Join(dir, "long")
	for _, err := range []error{
		syscall.Mkfifo(pipe, 0o600),
		os.WriteFile(good, []byte(secret+"\n"), 0o600),
		os.Symlink(good, link), // as Kubernetes mounts them
		os.WriteFile(long, []byte(secret+strings.Repeat("\n", maxSecretFile)), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, says string }{
		{pipe, "no regular file"}, {"/dev/zero", "no regular file"}, {dir, "no regular file"},
		{long, "more than"}, {filepath.Join(dir, "none"), "no such file"}, {good, ""}, {link, ""},
	} {
		done := make(chan error, 1)
		go func() {
			_, err := Secrets(policy.Webhook{SecretFile: c.path})
			done <- err
		}()
		select {
		case err := <-done:
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", c.path, err, c.says)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is read for ever", c.path)
		}
	}
}
