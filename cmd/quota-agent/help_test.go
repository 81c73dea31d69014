package main

import (
	"io"
	"regexp"
	"strings"
	"testing"
)

// --help names each flag's value and variable, but for switches, which take none.
func TestHelpNamesValues(t *testing.T) {
	var help strings.Builder
	_, _ = parse([]string{"--help"}, &help)
	found := regexp.MustCompile(`(?m)^  --([a-z-]+)( [A-Z=]+)?   \((\w+)\)$`).FindAllStringSubmatch(help.String(), -1)
	if len(found) < 20 || len(found) != strings.Count(help.String(), "\n  --") {
		t.Fatalf("%d flags are told of in full of %d:\n%s", len(found), strings.Count(help.String(), "\n  --"), help.String())
	}
	for _, m := range found {
		if m[3] != "QUOTA_AGENT_"+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_")) {
			t.Errorf("--%s: variable %s", m[1], m[3])
		}
		if m[2] == "" && !strings.Contains("allow-free-checks allow-unknown events-without-journal openai-headers", m[1]) {
			t.Errorf("--%s: its value has no name", m[1])
		}
	}
}

// A release's number in the environment is no command to print one.
func TestAVersionInTheEnvironmentIsNoFlag(t *testing.T) {
	t.Setenv("QUOTA_AGENT_VERSION", "1.2.3")
	if c, err := parse(nil, io.Discard); err != nil || c.version {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parse([]string{"--version"}, io.Discard); err != nil || !c.version {
		t.Errorf("--version: %+v, %v", c, err)
	}
}
