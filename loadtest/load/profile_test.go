package load

import (
	"os"
	"path/filepath"
	"testing"
)

// A directory that is not there is made: leases of a minute or two were made by then, and would have been for nothing.
func TestProfilesDirectoryIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "today")
	end, err := profile(dir, "load")
	if err != nil {
		t.Fatal(err)
	}
	end()
	if _, err := os.Stat(filepath.Join(dir, "load.pprof")); err != nil {
		t.Error(err)
	}
}
