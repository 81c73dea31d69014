package main

import "testing"

func TestSwitchFileFlag(t *testing.T) {
	c, err := parse([]string{"--switch-file", "/etc/quota/switches.yaml"}, nil)
	if err != nil || c.switchFile != "/etc/quota/switches.yaml" {
		t.Errorf("got %q, %v", c.switchFile, err)
	}
}
