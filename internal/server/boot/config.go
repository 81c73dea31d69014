package boot

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/flagenv"
)

// Defaults of the flags.
const (
	DefaultGRPCAddr   = "127.0.0.1:7600"
	DefaultHTTPAddr   = "127.0.0.1:7601"
	DefaultLeaseStore = "memory"
	DefaultDataDir    = "./quota-data"
	// minKeyLen keeps a bootstrap key from being guessed: it is accepted from anywhere.
	minKeyLen = 16
	// maxAhead is two years: then every period under way has ended.
	maxAhead = 2 * 366 * 24 * time.Hour
)

// Config is what quota-server can be told. The zero value is the embedded server
// with its defaults.
type Config struct {
	GRPCAddr string // where gRPC is served
	HTTPAddr string // where health, metrics and REST are served

	LeaseStore     string // memory, or redis://host:port,host:port
	Ledger         string // sqlite:PATH or postgres://…; empty is a SQLite file in DataDir
	LedgerOwnerURL string // Postgres as the owner, to migrate at the start; empty to leave that to `migrate`
	DataDir        string // where the embedded engines keep their files

	Policy string // policy file; see docs/operations.md for when it is applied

	SwitchFile string // file of switches that override those set, for this server's agents

	TLSCert     string // certificate file of both listeners; empty without TLS
	TLSKey      string
	TLSClientCA string // authorities of client certificates, which are then required

	BootstrapAdminKey string // accepted as an admin's key besides those stored
	InsecureOpen      bool   // let everybody in
	CertificateAgents bool   // an agent's certificate names its agent

	PrivateWebhooks bool // let webhooks reach private addresses

	FoldInterval time.Duration // how often reports are folded into blocks; 0 for the ledger's default

	CloseAfter time.Duration // how long after a period's end its statement is closed; 0 to leave that to people

	ClockAhead time.Duration // how far an embedded server's calendar is ahead of the time; for a copy of its files

	LogLevel  string // debug, info, warn or error
	LogFormat string // text or json

	// For servers within a program; flags do not reach these.
	GRPC, HTTP net.Listener         // served instead of the addresses; New takes them over
	Leases     lease.Store          // used instead of LeaseStore; nil for not
	Log        *slog.Logger         // instead of LogLevel and LogFormat
	Registry   *prometheus.Registry // where metrics go; nil for one of the server's own
}

// Flags makes flags of c, with its present values for defaults.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.fill()
	fs.StringVar(&c.GRPCAddr, "grpc-addr", c.GRPCAddr, "where gRPC is served, to agents and quotactl: an `ADDRESS` HOST:PORT")
	fs.StringVar(&c.HTTPAddr, "http-addr", c.HTTPAddr, "where REST, metrics, health and readiness are served: an `ADDRESS` HOST:PORT")
	fs.StringVar(&c.LeaseStore, "lease-store", c.LeaseStore, "where buckets are kept: `STORE` is memory, or redis://host:port,host:port,... (a cluster, or one Redis; rediss:// with TLS)")
	fs.StringVar(&c.Ledger, "ledger", c.Ledger, "where usage, policy and keys are kept: `LEDGER` is sqlite:PATH or postgres://user:password@host:port/database; a SQLite file in --data-dir if not given")
	fs.StringVar(&c.LedgerOwnerURL, "ledger-owner-url", c.LedgerOwnerURL, "the Postgres ledger as its owner, a `URL` postgres://...: migrates the schema at the start, under a lock; if not given, quota-server migrate does")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "`DIRECTORY` of the files of an embedded server; it is made if it is not there")
	fs.StringVar(&c.Policy, "policy", c.Policy, "`FILE` of the policy. An embedded server applies it at the start and whenever it changes. On a shared ledger it is applied once, and must not differ later. Without it, the policy of quotactl apply holds, or the built-in one")
	fs.StringVar(&c.SwitchFile, "switch-file", c.SwitchFile, "`FILE` of switches (YAML or JSON: mode, deny) that override those set, for the agents of this server; read within a second of each change")
	fs.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "`FILE` of the server's certificate (PEM); gRPC and HTTP are then served with TLS")
	fs.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "`FILE` of the private key of --tls-cert (PEM)")
	fs.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "`FILE` of authorities (PEM) that clients' certificates must come from. Certificates are then required, except for health and metrics")
	fs.StringVar(&c.BootstrapAdminKey, "bootstrap-admin-key", c.BootstrapAdminKey, "a first admin `KEY`, accepted besides those stored; at least 16 bytes; better given as the variable, out of the process list")
	fs.BoolVar(&c.InsecureOpen, "insecure-open", c.InsecureOpen, "never ask for a key: everybody may do everything, from other machines too")
	fs.BoolVar(&c.CertificateAgents, "tls-agent-names", c.CertificateAgents, "with --tls-client-ca: an agent's id must be a DNS name or the common name of its certificate")
	fs.BoolVar(&c.PrivateWebhooks, "webhooks-to-private-networks", c.PrivateWebhooks, "let webhooks reach private addresses (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7)")
	fs.DurationVar(&c.FoldInterval, "fold-interval", c.FoldInterval, "how often reports are folded into blocks, a `DURATION`; 10s if it is 0")
	fs.DurationVar(&c.CloseAfter, "close-statements-after", c.CloseAfter, "how long after a period's end its statement is closed, once usage is complete: a `DURATION` up to 2160h. With 0 only quotactl statement close and close-due close it")
	fs.DurationVar(&c.ClockAhead, "clock-ahead", c.ClockAhead, "how far the calendar is ahead of the clock, a `DURATION`. It shows the effects of a period's end, on a copy of an embedded server's files, without agents")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "lowest `LEVEL` that is logged: debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`FORMAT` of the log: text or json")
}

// Parse reads the command line, then QUOTA_* from the environment, then the file that --config names. The first that
// sets a value wins.
func (c *Config) Parse(fs *flag.FlagSet, args []string) error {
	fs.String("config", "", "`FILE` of flags, a name (without --) and its value on each line")
	if err := flagenv.Parse(fs, args, "QUOTA"); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return c.Validate()
}

// fill puts defaults where nothing is said.
func (c *Config) fill() {
	def := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	def(&c.GRPCAddr, DefaultGRPCAddr)
	def(&c.HTTPAddr, DefaultHTTPAddr)
	def(&c.LeaseStore, DefaultLeaseStore)
	def(&c.DataDir, DefaultDataDir)
	def(&c.LogLevel, "info")
	def(&c.LogFormat, "text")
}

// Validate reports everything that is wrong, joined. Defaults are filled in.
func (c *Config) Validate() error {
	c.fill()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, a := range []struct{ flag, addr string }{{"grpc-addr", c.GRPCAddr}, {"http-addr", c.HTTPAddr}} {
		_, port, err := net.SplitHostPort(a.addr)
		if err == nil {
			_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port) // it asks a file at most
		}
		if err != nil {
			bad("--%s %q: write host:port, such as 127.0.0.1:7600", a.flag, a.addr)
		}
	}
	if c.LeaseStore != "memory" {
		if _, err := parseRedis(c.LeaseStore); err != nil {
			bad("--lease-store: %w", err)
		}
	}
	path, _, err := c.ledger()
	switch {
	case err != nil:
		bad("--ledger: %w", err)
	case path != "" && c.LedgerOwnerURL != "":
		bad("--ledger-owner-url: only a Postgres ledger has an owner; SQLite migrates itself")
	}
	if c.LedgerOwnerURL != "" && !isPostgres(c.LedgerOwnerURL) {
		bad("--ledger-owner-url: write postgres://user@host/database")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("--tls-cert and --tls-key go together")
	}
	if c.TLSClientCA != "" && c.TLSCert == "" {
		bad("--tls-client-ca needs --tls-cert and --tls-key")
	}
	if c.CertificateAgents && c.TLSClientCA == "" {
		bad("--tls-agent-names needs --tls-client-ca")
	}
	if c.BootstrapAdminKey != "" && len(c.BootstrapAdminKey) < minKeyLen {
		bad("--bootstrap-admin-key: at least %d bytes, or it could be guessed", minKeyLen)
	}
	if c.FoldInterval < 0 {
		bad("--fold-interval %s is negative", c.FoldInterval)
	}
	if c.CloseAfter < 0 || c.CloseAfter > wire.MaxGrace {
		bad("--close-statements-after is %s; it must be 0 to %s", c.CloseAfter, wire.MaxGrace)
	}
	if c.ClockAhead < 0 || c.ClockAhead > maxAhead {
		bad("--clock-ahead is %s; it must be 0 to %s", c.ClockAhead, maxAhead)
	}
	if c.ClockAhead > 0 && (c.LeaseStore != "memory" || path == "") {
		bad("--clock-ahead is for a copy of an embedded server's files: with a ledger or leases that others use, each server would have another time")
	}
	if _, err := c.logger(io.Discard); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// now is the server's time.
func (c *Config) now() time.Time { return time.Now().Add(c.ClockAhead) }

// ledger returns the SQLite file or the Postgres URL.
func (c *Config) ledger() (path, postgres string, err error) {
	switch {
	case c.Ledger == "":
		return filepath.Join(c.DataDir, "quota.db"), "", nil
	case strings.HasPrefix(c.Ledger, "sqlite:"):
		path = strings.TrimPrefix(strings.TrimPrefix(c.Ledger, "sqlite:"), "//")
		if path == "" {
			return "", "", errors.New("sqlite: needs a path, such as sqlite:./quota-data/quota.db")
		}
		return path, "", nil
	case isPostgres(c.Ledger):
		if _, err := url.Parse(c.Ledger); err != nil {
			return "", "", errors.New("this is not a URL: write postgres://user:password@host:port/database") // without the password in it
		}
		return "", c.Ledger, nil
	}
	return "", "", errors.New("write sqlite:PATH or postgres://user:password@host:port/database")
}

func isPostgres(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

func (c *Config) logger(w io.Writer) (*slog.Logger, error) {
	if c.Log != nil {
		return c.Log, nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", c.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: write text or json", c.LogFormat)
}
