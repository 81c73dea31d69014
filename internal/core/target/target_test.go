package target

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, addr := range []string{"quota.internal:7600", "127.0.0.1:1", "[::1]:65535", "unix:/run/quota.sock", "unix:///run/quota.sock", "unix:quota.sock", "dns:a:7600", "dns:///a:7600", "dns://8.8.8.8/a:7600"} {
		if err := Check(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for addr, why := range map[string]string{
		"": "empty", " ": "empty", "a:7600 ": "space", "a: 7600": "space", "a:76\n00": "space", "http://a:7600": "URL", "HTTPS://a": "URL", "grpc://a:7600": "not HOST:PORT",
		"a": "no port", "dns:a": "no port", "127.0.0.1": "no port", ":7600": "no host", "a:": "not a number", "a:x": "not a number", "a:0": "not a number",
		"a:76000": "not a number", "::1": "not HOST:PORT", "::1:7600": "not HOST:PORT", "unix:": "no socket", "unix://": "no socket", "user@a:7600": "not HOST:PORT", "a/b:7600": "not HOST:PORT",
	} {
		if err := Check(addr); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "write HOST:PORT") {
			t.Errorf("%q: got %v, want that it is refused: %s", addr, err, why)
		}
	}
	if all, err := List("a:1,unix:/b"); err != nil || len(all) != 2 {
		t.Errorf("two: %q, %v", all, err)
	}
	if all, err := List(" a:1, unix:/b "); err != nil || len(all) != 2 || all[0] != "a:1" || all[1] != "unix:/b" {
		t.Errorf("two with spaces between: %q, %v", all, err)
	}
	for _, addrs := range []string{"", "a:1,", "a:1, ", "a:1 b:2", "a:1,b"} {
		if _, err := List(addrs); err == nil {
			t.Errorf("%q is taken", addrs)
		}
	}
}
