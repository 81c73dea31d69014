package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/server/boot"
)

// What --help calls a flag's value is one word: it once was a sentence of the flag's use.
func TestHelpNamesValues(t *testing.T) {
	serve, retain := flags("serve", ""), flags("retain", "")
	new(boot.Config).Flags(serve)
	new(retaining).flags(retain)
	for _, fs := range []*flag.FlagSet{serve, retain} {
		fs.VisitAll(func(f *flag.Flag) {
			name, use := flag.UnquoteUsage(f)
			if strings.Contains(name, " ") || name == "string" || name == "int" || name == "duration" || use == "" {
				t.Errorf("%s --%s: its value is called %q, its use %q", fs.Name(), f.Name, name, use)
			}
		})
	}
}
