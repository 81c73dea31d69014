package load

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile begins a processor profile of this process, and returns a function that ends it. Without a directory there is
// none.
func profile(dir, name string) (end func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("load: profile: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, name+".pprof"))
	if err != nil {
		return nil, fmt.Errorf("load: profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("load: profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a profile that is cut short says so when it is read
	}, nil
}
