package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/doors"
)

func TestParseReadsFlagsEnvironmentAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.conf")
	text := "server from-file:1\nkey from-file\nattribute tenant=header:A,header:B\nattribute ip=ip\ncost-header X-Cost\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("QUOTA_AGENT_KEY", "from-environment")
	t.Setenv("QUOTA_AGENT_SERVER", "from-environment:1")
	t.Setenv("QUOTA_AGENT_REQUIRE", "tenant; ip")
	c, err := parse([]string{"--config", file, "--server", "from-flag:1", "--grpc-addr", ""}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.server != "from-flag:1" || c.key != "from-environment" || c.costHeader != "X-Cost" || c.grpcAddr != "" {
		t.Errorf("got server %s, key %s, cost header %s, gRPC at %q", c.server, c.key, c.costHeader, c.grpcAddr)
	}
	if want := []string{"tenant=header:A,header:B", "ip=ip"}; !slices.Equal(c.attributes, want) {
		t.Errorf("attributes: got %q, want %q", []string(c.attributes), want)
	}
	if want := []string{"tenant", "ip"}; !slices.Equal(c.require, want) {
		t.Errorf("require: got %q, want %q", []string(c.require), want)
	}
}

func TestParseWithoutAnything(t *testing.T) {
	c, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.attributes, doors.DefaultAttributes()) {
		t.Errorf("attributes: got %q", []string(c.attributes))
	}
	other, err := parse([]string{"--http-addr", "unix:/run/quota/b.sock"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.agentID == "" || c.agentID == other.agentID {
		t.Errorf("two agents of one host are named %q and %q", c.agentID, other.agentID)
	}
}

// Agents of one host have names of their own, whatever their addresses have in common; where all of an address can be in
// the name, it is.
func TestDefaultAgentIDsDiffer(t *testing.T) {
	long := "unix:/run/" + strings.Repeat("quota/", 14)
	seen := make(map[string][]string)
	for _, addrs := range [][]string{
		{"unix:/run/a/b.sock"}, {"unix:/run/a-b.sock"}, {"unix:/run/a b.sock"}, {"unix:/run/a/b.sock", "127.0.0.1:7611"},
		{long + "1/http", long + "grpc"}, {long + "2/http", long + "grpc"}, {long + "1/http", long + "grpc2"}, {"127.0.0.1:7610", "127.0.0.1:7611"}, {"[::1]:7610"}, {"-::1-:7610"},
	} {
		id := defaultAgentID(addrs...)
		if other, same := seen[id]; same || !limit.ValidAgent(id) || id != defaultAgentID(addrs...) {
			t.Errorf("%q is named %q, as %q; want a name of its own, valid and stable", addrs, id, other)
		}
		seen[id] = addrs
	}
	if id := defaultAgentID("127.0.0.1:7610", "127.0.0.1:7611"); !strings.HasSuffix(id, ":127.0.0.1:7610:127.0.0.1:7611") {
		t.Errorf("got %q, want the addresses as they are", id)
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	_, err := parse([]string{
		"--http-addr", "nowhere", "--grpc-addr", "unix:", "--agent-id", "a b", "--attribute", "tenant=cookie:x",
		"--require", "user", "--tls-cert", "c.pem", "--close-wait", "0s", "--journal-keep", "-1s", "--journal-keep-mb", "-1", "--journal-secret-file", "s", "--log-level", "loud", "--server", "", "--advertise", "0.0.0.0:1",
	}, io.Discard)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"--http-addr", "--grpc-addr", "--agent-id", "no such source", "--require", "--tls-key", "--close-wait", "--journal-keep is", "--journal-keep-mb", "--journal-secret-file needs --journal", "--log-level", "--server", "--advertise needs --peer-secret", "nobody reaches",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if _, err := parse([]string{"--http-addr", "", "--grpc-addr", ""}, io.Discard); err == nil {
		t.Error("an agent without a door: got no error")
	}
	if _, err := parse([]string{"serve"}, io.Discard); err == nil {
		t.Error("an argument that is no flag: got no error")
	}
}

// The journal's secret is what its file says, less the line feed that an editor puts there; one that can be guessed is refused.
func TestJournalSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for _, c := range []struct{ text, want, fault string }{
		{"0123456789abcdef\n", "0123456789abcdef", ""},
		{"0123456789abcdef \r\n", "0123456789abcdef ", ""},
		{"short\n", "", "has 5 bytes; at least 16"},
		{"", "", "has 0 bytes"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("QUOTA_AGENT_JOURNAL_SECRET_FILE", path)
		cfg, err := parse([]string{"--journal", "dir"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cfg.secret()
		if string(got) != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %q, %v; want %q, %q", c.text, got, err, c.want, c.fault)
		}
	}
	if got, err := (&config{}).secret(); got != nil || err != nil {
		t.Errorf("none: %q, %v", got, err)
	}
	if _, err := (&config{secretFile: path + "x"}).secret(); err == nil {
		t.Error("a file that is not there: no error")
	}
}

// A secret that agents share has 32 bytes, or it could be guessed.
func TestPeerSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for text, good := range map[string]bool{strings.Repeat("s", 32) + "\n": true, strings.Repeat("s", 31) + "\n": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := parse([]string{"--peer-secret", path, "--advertise", "agent-1:7611"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.peerSecret(); (err == nil) != good || good && len(got) != 32 {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
