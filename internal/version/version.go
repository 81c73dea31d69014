// Package version says which build this is.
package version

import (
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X github.com/f4ee788f/quota/internal/version.version=v1.2.3".
var version string

// String returns the build's version: the linker's, or else the module's or the
// commit's as the go command recorded it, or "dev".
func String() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision != "" {
		return revision + dirty
	}
	return "dev"
}

// Go returns the Go release that made the build.
func Go() string { return runtime.Version() }

// Line is what --version prints for the program of that name.
func Line(program string) string {
	return program + " " + String() + " (" + Go() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")"
}
