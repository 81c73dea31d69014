package boot

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, args ...string) (Config, error) {
	t.Helper()
	var c Config
	fs := flag.NewFlagSet("quota-server", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.Flags(fs)
	return c, c.Parse(fs, args)
}

// The command line wins over the environment, and that over the file.
func TestConfigPrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quota.conf")
	if err := os.WriteFile(path, []byte("# a comment\ngrpc-addr 127.0.0.1:1\nhttp-addr 127.0.0.1:1\ndata-dir /from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("QUOTA_CONFIG", path)
	t.Setenv("QUOTA_GRPC_ADDR", "127.0.0.1:2")
	t.Setenv("QUOTA_HTTP_ADDR", "127.0.0.1:2")
	c, err := parse(t, "--grpc-addr", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.GRPCAddr != "127.0.0.1:3" || c.HTTPAddr != "127.0.0.1:2" || c.DataDir != "/from-file" || c.LeaseStore != "memory" {
		t.Errorf("got %+v, want gRPC from the command line, HTTP from the environment, the directory from the file, memory by default", c)
	}
}

// Everything that is wrong is said at once, without secrets.
func TestConfigFaults(t *testing.T) {
	c := Config{
		GRPCAddr: "nowhere", HTTPAddr: "127.0.0.1:99999", LeaseStore: "redis://host", Ledger: "mysql://x", LedgerOwnerURL: "x", TLSCert: "a",
		TLSClientCA: "b", BootstrapAdminKey: "short", FoldInterval: -1, ClockAhead: -1, LogLevel: "loud",
	}
	err := c.Validate()
	for _, want := range []string{"--grpc-addr", "--http-addr", "--lease-store", "--ledger:", "--ledger-owner-url", "--tls-cert and --tls-key", "--bootstrap-admin-key", "--fold-interval", "--clock-ahead", "--log-level"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
	for _, c := range []Config{
		{LeaseStore: "redis://u:hunter2%@h:1"},
		{Ledger: "postgres://u:hunter2@h:port:port/%"},
		{Ledger: "sqlite:"},
		{LogFormat: "xml"},
		{ClockAhead: time.Hour, LeaseStore: "redis://h:1"},
		{ClockAhead: time.Hour, Ledger: "postgres://h/d"},
		{ClockAhead: 3 * 366 * 24 * time.Hour},
	} {
		if err := c.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: got %v, want a fault without the password", c, err)
		}
	}
	var zero Config
	if err := zero.Validate(); err != nil {
		t.Errorf("the zero value: got %v", err)
	}
}

func TestParseRedis(t *testing.T) {
	for in, want := range map[string]struct {
		addrs   string
		cluster bool
		user    string
		db      int
		prefix  string
		tls     bool
	}{
		"redis://a:1":                           {addrs: "a:1", prefix: "quota:"},
		"redis://a:1,b:2,c:3":                   {addrs: "a:1 b:2 c:3", cluster: true, prefix: "quota:"},
		"redis://a:1?cluster=true&prefix=x:":    {addrs: "a:1", cluster: true, prefix: "x:"},
		"rediss://u:p%40%2C@a:1/3":              {addrs: "a:1", user: "u p@,", db: 3, prefix: "quota:", tls: true},
		"redis://:p@[::1]:7000,127.0.0.1:7001/": {addrs: "[::1]:7000 127.0.0.1:7001", cluster: true, user: " p", prefix: "quota:"},
	} {
		p, err := parseRedis(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		user := strings.TrimRight(p.Username+" "+p.Password, " ")
		if strings.Join(p.Addrs, " ") != want.addrs || p.IsClusterMode != want.cluster || user != want.user || p.DB != want.db || p.prefix != want.prefix || (p.TLSConfig != nil) != want.tls {
			t.Errorf("%s: got %v cluster %t user %q db %d prefix %q, want %+v", in, p.Addrs, p.IsClusterMode, user, p.DB, p.prefix, want)
		}
	}
	for _, in := range []string{"", "redis://", "redis://a", "redis://a:0", "redis://a:x", "redis://a:1,", "redis://:1", "redis://a:1/x", "redis://a:1,b:2/1", "redis://a:1?x=1", "redis://a:1?prefix={x}", "http://a:1"} {
		if p, err := parseRedis(in); err == nil {
			t.Errorf("%q: got %v, want a fault", in, p.Addrs)
		}
	}
}
