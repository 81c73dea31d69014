package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/target"
	"github.com/f4ee788f/quota/internal/doors"
	"github.com/f4ee788f/quota/internal/flagenv"
	"github.com/f4ee788f/quota/pkg/client"
)

// maxJournalMB is a tebibyte.
const maxJournalMB = 1 << 20

// config is the values of the flags, the environment and the file.
type config struct {
	server     string
	key        string
	agentID    string
	httpAddr   string
	grpcAddr   string
	tlsCA      string
	tlsCert    string
	tlsKey     string
	tlsName    string
	attributes list
	require    list
	costHeader string
	allowFree  bool
	unknown    int
	openAI     bool
	allowBlind bool
	switchFile string
	journal    string
	secretFile string // of the journal's secret
	peerFile   string // of the secret that agents share
	advertise  string // where they reach this one
	recovers   bool   // settle what the journal has, and end
	journalAge time.Duration
	journalMB  int64
	events     eventsConfig
	closeWait  time.Duration
	buckets    int
	share      int // of them, percent
	logLevel   string
	version    bool
}

// list is a flag that may be repeated. In one word, as in the environment, semicolons separate its values, because
// commas separate an attribute's sources.
type list []string

func (l *list) String() string { return strings.Join(*l, "; ") }

func (l *list) Set(s string) error {
	for _, v := range strings.Split(s, ";") {
		if v = strings.TrimSpace(v); v != "" {
			*l = append(*l, v)
		}
	}
	return nil
}

// parse reads the arguments, then QUOTA_AGENT_… from the environment, then the
// file of --config; the first that sets a value wins. Help goes to w.
func parse(args []string, w io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("quota-agent", flag.ContinueOnError)
	f.SetOutput(io.Discard) // faults are said by run
	f.Usage = func() {}
	f.StringVar(&c.server, "server", "127.0.0.1:7600", "gRPC `ADDRESSES` of quota servers: HOST:PORT, several with commas between, or unix:PATH")
	f.StringVar(&c.key, "key", "", "the agent's `KEY`, sent as a bearer token; better given as the variable, out of the process list; none for an open server")
	f.StringVar(&c.agentID, "agent-id", "", "stable `NAME` of this agent, never used by two at once. If not given, it is made of the host's name and the addresses of the doors")
	f.StringVar(&c.httpAddr, "http-addr", "127.0.0.1:7610", "where /check, /v1/decide, /v1/events and other calls in JSON, /openapi.json, /healthz, /readyz and /metrics are served: an `ADDRESS` HOST:PORT or unix:PATH; empty for nowhere")
	f.StringVar(&c.grpcAddr, "grpc-addr", "127.0.0.1:7611", "where Envoy's rate limit service, DecisionService and thin clients are served: an `ADDRESS` HOST:PORT or unix:PATH; empty for nowhere")
	f.StringVar(&c.tlsCA, "tls-ca", "", "`FILE` of authorities (PEM) that the servers' certificate must come from; implies TLS")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`FILE` of this agent's certificate (PEM), for servers that ask for one; implies TLS")
	f.StringVar(&c.tlsKey, "tls-key", "", "`FILE` of the private key of --tls-cert (PEM)")
	f.StringVar(&c.tlsName, "tls-server-name", "", "`NAME` that the servers' certificate must have, if it is not the host of --server; implies TLS")
	f.Var(&c.attributes, "attribute", "an attribute of a check and where it comes from, `NAME=SOURCE`; may be repeated (default "+strings.Join(doors.DefaultAttributes(), "; ")+")")
	f.Var(&c.require, "require", "attribute of this `NAME` that a check must have, or it is answered 400; may be repeated")
	f.StringVar(&c.costHeader, "cost-header", "", "`HEADER` of a check's cost in units, which the gateway must set or clear; every check costs 1 if not given")
	f.BoolVar(&c.allowFree, "allow-free-checks", false, "accept a cost of 0 in --cost-header, which checks and spends nothing; otherwise it is answered 400")
	f.IntVar(&c.unknown, "unknown-tenant", http.StatusForbidden, "`STATUS` of a check whose tenant is unknown: 403, or 401 if the tenant is all that identifies a caller")
	f.BoolVar(&c.openAI, "openai-headers", false, "answers of /check and Envoy's rate limit service have x-ratelimit-limit-requests, -remaining-requests and -reset-requests as OpenAI's, too, and such of other costs")
	f.BoolVar(&c.allowBlind, "allow-unknown", false, "allow requests, unbilled, while no server was ever reached; they are denied otherwise")
	f.StringVar(&c.switchFile, "switch-file", "", "`FILE` of switches (YAML or JSON: mode, deny) that win over the server's; read within a second of each change")
	f.StringVar(&c.journal, "journal", "", "`DIRECTORY` that keeps counted usage until it is settled, so that a crash loses nothing. It is this agent's alone. Without it there is no journal")
	f.StringVar(&c.secretFile, "journal-secret-file", "", "`FILE` of a secret of 16 bytes or more. Journal contents without its seal are not believed. Keep it where writers of the journal cannot read it")
	f.StringVar(&c.peerFile, "peer-secret", "", "`FILE` of a secret of 32 bytes or more that all agents of an installation share. With it each of them takes the ids of the others' reservations")
	f.StringVar(&c.advertise, "advertise", "", "`ADDRESS` HOST:PORT of --grpc-addr as other agents reach it: there they pass on calls about reservations that are here; needs --peer-secret")
	f.DurationVar(&c.journalAge, "journal-keep", client.DefaultJournalAge, "how long the journal keeps settled usage, a `DURATION`, to send it again to a ledger restored from a backup")
	f.Int64Var(&c.journalMB, "journal-keep-mb", client.DefaultJournalBytes>>20, "most `MIB` of settled usage that the journal keeps; the oldest goes first")
	c.events.flags(f)
	f.IntVar(&c.buckets, "max-buckets", client.DefaultMaxBuckets, "buckets held at most, a `NUMBER`, and as many tenants")
	f.IntVar(&c.share, "tenant-share", client.DefaultTenantShare, "`PERCENT` of --max-buckets that one tenant may hold while no other holds any, 1 to 100; a tenant that holds few always finds room")
	f.DurationVar(&c.closeWait, "close-wait", 15*time.Second, "how long the agent may take at its end to settle admitted units, a `DURATION`")
	f.StringVar(&c.logLevel, "log-level", "info", "lowest `LEVEL` that is logged: debug, info, warn or error")
	_ = f.String("config", "", "`FILE` of flags, a name (without --) and its value on each line")
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-version") { // no flag like the others: QUOTA_AGENT_VERSION is a release's to many
		c.version = true
		return c, nil
	}
	if c.recovers = len(args) > 0 && args[0] == "recover"; c.recovers {
		args = args[1:]
	}
	err := flagenv.Parse(f, args, "QUOTA_AGENT")
	if errors.Is(err, flag.ErrHelp) {
		help(w, f)
	}
	if err != nil {
		return c, err
	}
	if c.recovers {
		if f.NArg() != 1 {
			return c, errors.New("recover DIR: name one directory")
		}
		c.journal = f.Arg(0)
	} else if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if len(c.attributes) == 0 {
		c.attributes = doors.DefaultAttributes()
	}
	c.events.fill()
	if c.agentID == "" {
		c.agentID = defaultAgentID(c.httpAddr, c.grpcAddr)
	}
	return c, c.validate()
}

// help prints the text of --help.
func help(w io.Writer, f *flag.FlagSet) {
	fmt.Fprint(w, `quota-agent answers gateways that do not link the SDK: HTTP checks, JSON over HTTP, Envoy's
rate limit service, and the SDK's thin clients. docs/doors.md has the settings of each gateway.

  quota-agent [flags]              serve
  quota-agent recover [flags] DIR  settle what an agent or a gateway that is no more left in
                                   its --journal, print what was done, and end. Of the flags,
                                   only --server, --key, --tls-..., --journal-secret-file,
                                   --close-wait and --log-level count
  quota-agent --version            print the version, and end

Each flag can also be given as the variable that is named beside it, or as a line
"http-addr 127.0.0.1:7610" of the file that --config names; the command line wins over
the environment, and that over the file.

`)
	flagenv.Help(w, f, "QUOTA_AGENT")
}

// validate reports every fault.
func (c *config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, err := target.List(c.server); err != nil {
		fault("--server: %w", err)
	}
	if c.httpAddr == "" && c.grpcAddr == "" {
		fault("--http-addr and --grpc-addr: name at least one, for an agent without a door serves nobody")
	}
	for flag, addr := range map[string]string{"--http-addr": c.httpAddr, "--grpc-addr": c.grpcAddr} {
		if addr == "" {
			continue
		}
		if err := doors.CheckAddress(addr); err != nil {
			fault("%s: %w", flag, err)
		}
	}
	if !limit.ValidAgent(c.agentID) {
		fault("--agent-id: %s: 1 to %d bytes of [A-Za-z0-9._:-]", limit.Quote(c.agentID), limit.MaxAgentLen)
	}
	if _, err := doors.ParseAttributes(c.attributes); err != nil {
		fault("--attribute: %w", err)
	}
	if err := c.events.validate(); err != nil {
		faults = append(faults, err)
	}
	for _, name := range c.require {
		if !slices.ContainsFunc(c.attributes, func(a string) bool { return strings.HasPrefix(a, name+"=") }) {
			fault("--require %s: no --attribute of that name", limit.Quote(name))
		}
	}
	if c.unknown != http.StatusForbidden && c.unknown != http.StatusUnauthorized {
		fault("--unknown-tenant is %d; it must be 401 or 403", c.unknown)
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		fault("--tls-cert and --tls-key go together")
	}
	if c.secretFile != "" && c.journal == "" {
		fault("--journal-secret-file needs --journal")
	}
	if c.advertise != "" {
		if c.peerFile == "" {
			fault("--advertise needs --peer-secret: other agents cannot know an id of this one without it")
		}
		if c.grpcAddr == "" {
			fault("--advertise needs --grpc-addr")
		}
		if err := doors.CheckAdvertised(c.advertise); err != nil {
			fault("--advertise: %w", err)
		}
	}
	if c.journalAge < 0 {
		fault("--journal-keep is %s; it must not be negative", c.journalAge)
	}
	if c.journalMB < 0 || c.journalMB > maxJournalMB {
		fault("--journal-keep-mb is %d; it must be from 0 to %d", c.journalMB, maxJournalMB)
	}
	if c.buckets < 1 {
		fault("--max-buckets is %d; it must be above 0", c.buckets)
	}
	if c.share < 1 || c.share > 100 {
		fault("--tenant-share is %d; it must be from 1 to 100", c.share)
	}
	if c.closeWait <= 0 {
		fault("--close-wait: must be above 0")
	}
	if _, err := level(c.logLevel); err != nil {
		fault("--log-level: %w", err)
	}
	return errors.Join(faults...)
}

// defaultAgentID is stable over restarts. It differs between agents of one host, because their doors cannot be at the
// same addresses.
func defaultAgentID(addrs ...string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	whole := "agent:" + host
	for _, a := range addrs {
		if a != "" {
			whole += ":" + a
		}
	}
	if limit.ValidAgent(whole) {
		return whole
	}
	// Characters that a name cannot have are left out, so others may give the same name. A hash of the whole makes it
	// unique.
	id := []byte(whole)
	for i, b := range id {
		if !limit.ValidAgent(string(rune(b))) {
			id[i] = '-'
		}
	}
	sum := sha256.Sum256([]byte(whole))
	suffix := "-" + hex.EncodeToString(sum[:6])
	return string(id[:min(len(id), limit.MaxAgentLen-len(suffix))]) + suffix
}

// secret is the journal's secret; nil for none.
func (c *config) secret() ([]byte, error) {
	return secretOf("--journal-secret-file", c.secretFile, client.MinJournalSecret)
}

// peerSecret is the secret that agents share; nil for none.
func (c *config) peerSecret() ([]byte, error) {
	return secretOf("--peer-secret", c.peerFile, doors.MinPeerSecret)
}

// secretOf reads a flag's file, without the line feed that editors put at its end; nil for no file.
func secretOf(flag, file string, least int) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	b = bytes.TrimRight(b, "\r\n")
	if len(b) < least {
		return nil, fmt.Errorf("%s: %s has %d bytes; at least %d, or they could be guessed", flag, file, len(b), least)
	}
	return b, nil
}

// tls returns nil if no setting asks for TLS.
func (c *config) tls() (*tls.Config, error) {
	if c.tlsCA == "" && c.tlsCert == "" && c.tlsName == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.tlsName}
	if c.tlsCA != "" {
		pem, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca: no certificate in %s", c.tlsCA)
		}
	}
	if c.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}
