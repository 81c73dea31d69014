package engines

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// ErrMissing means that an engine's programs are not on this machine.
var ErrMissing = errors.New("engines: not installed")

// FindRedis returns the path of redis-server, or an error that wraps ErrMissing.
func FindRedis() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("%w: redis-server is not in PATH", ErrMissing)
	}
	return path, nil
}

// FindPostgres returns the directory that holds initdb and postgres. It is the one that PATH leads to, else the newest
// below /usr/lib/postgresql, where Debian puts them. The error wraps ErrMissing.
func FindPostgres() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// initdb looks for postgres beside itself: follow a link to the real directory.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			if _, err := exec.LookPath(filepath.Join(filepath.Dir(real), "initdb")); err == nil {
				return filepath.Dir(real), nil
			}
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%w: postgres and initdb are neither in PATH nor in /usr/lib/postgresql/*/bin", ErrMissing)
	}
	version := func(path string) int {
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err != nil {
			return 0
		}
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}
