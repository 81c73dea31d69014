package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/switchfile"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// FailureMode says how requests are decided while nothing is known of the policy, or
// of their tenant, because the server was never reached.
type FailureMode uint8

const (
	// FailClosed denies with ReasonUnknown. It is the default: what is admitted
	// without a policy can be neither limited nor billed.
	FailClosed FailureMode = iota
	// FailOpen admits with ReasonUnknown. Such units are counted in
	// Stats.Unaccounted and appear in no ledger.
	FailOpen
)

// Bounds and defaults of the options.
const (
	DefaultMaxBuckets     = 262_144          // about 150 MB when full, and up to as much again for what is remembered of requests
	DefaultTenantShare    = 80               // percent: one tenant alone leaves a fifth free
	DefaultMaxWait        = time.Second      // a few round trips and a retry
	DefaultFirstWait      = time.Second      // what a process start can spare
	DefaultRenewTimeout   = 2 * time.Second  // beyond it a server is as good as away
	DefaultReportInterval = 10 * time.Second // what a crash without a journal may lose
	DefaultCloseWait      = 10 * time.Second // short of the half minute that many give a process to end
	DefaultIdle           = 2 * time.Minute  // unused for so long, a bucket goes back
	DefaultMaxWaiting     = 16_384

	DefaultMaxReservations = 16_384      // that live at a time
	DefaultReservationTime = time.Minute // and is then cancelled
	MaxReservationTime     = time.Hour
)

type config struct {
	agent           string
	connect         connect.Options
	failure         FailureMode
	firstWait       time.Duration
	maxWait         time.Duration
	renewTimeout    time.Duration
	reportInterval  time.Duration
	closeWait       time.Duration
	idle            time.Duration
	maxBuckets      int
	tenantShare     int // percent of them
	maxWaiting      int
	logger          *slog.Logger
	withoutSlots    bool
	switchFile      string
	journal         string        // directory
	journalAge      time.Duration // that settled logs are kept
	journalBytes    int64         // of them at most
	journalSecret   []byte        // nil for none
	maxReservations int
	reservationTime time.Duration
	switches        switchfile.Says            // what the file said at the start
	api             quotav1.LeaseServiceClient // what it calls; nil for the connection's
}

// Option changes a default of Dial.
type Option func(*config)

// WithAgent names this client in the ledger and in leases: stable over restarts, 1 to
// 128 bytes of [A-Za-z0-9._:-], never used by two processes at once. The default is made of the host's
// name, the process id and chance.
func WithAgent(id string) Option { return func(c *config) { c.agent = id } }

// WithKey sends an agent key as a bearer token with every call. Without TLS it
// travels in the clear, which suits loopback and Unix sockets only.
func WithKey(key string) Option { return func(c *config) { c.connect.Key = key } }

// WithTLS talks TLS to the server. Without it the connection is plain.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.connect.TLS = t } }

// WithDialer connects in place of the net package: for tests and tunnels.
func WithDialer(d func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.connect.Dialer = d }
}

// WithFailureMode says how to decide what nothing is known of. The default is FailClosed.
func WithFailureMode(m FailureMode) Option { return func(c *config) { c.failure = m } }

// WithFirstWait bounds how long Dial waits for the first policy, by default one
// second. 0 does not wait.
func WithFirstWait(d time.Duration) Option { return func(c *config) { c.firstWait = d } }

// WithMaxWait bounds how long a request waits for a renewal, by default one
// second; its context may end earlier.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithRenewTimeout bounds one call to the server, by default two seconds. Where calls
// are answered quickly the bound is lower, down to a quarter of a second: leases are short.
func WithRenewTimeout(d time.Duration) Option { return func(c *config) { c.renewTimeout = d } }

// WithReportInterval is how often usage is reported, by default every ten
// seconds, give or take a tenth; the first time, and after the report at a slot's end, half of that to all of it, so
// that those who began together do not report together.
func WithReportInterval(d time.Duration) Option { return func(c *config) { c.reportInterval = d } }

// WithCloseWait bounds Close, by default ten seconds; its context may end earlier.
func WithCloseWait(d time.Duration) Option { return func(c *config) { c.closeWait = d } }

// WithIdle is how long a bucket may be unused before its lease goes back and its
// memory is freed, by default two minutes.
func WithIdle(d time.Duration) Option { return func(c *config) { c.idle = d } }

// WithMaxBuckets bounds the buckets held, and so the memory, by default 262,144.
// When few are free idle buckets make room; while none is idle, requests
// that need a new bucket are denied with ReasonOverloaded. See WithTenantShare.
func WithMaxBuckets(n int) Option { return func(c *config) { c.maxBuckets = n } }

// WithTenantShare bounds what one tenant may hold of the buckets while no other holds any, in percent, by default 80; 100 is
// no bound. Where several want more than that they have the same each, and a part stays free for those who hold few: of
// n at 80 percent it is 1/(1+4n). Who holds more than its share gives up the buckets that it has not used for longest. Buckets of a
// limit of the top level that tells no tenants apart count together, as one tenant's.
func WithTenantShare(percent int) Option { return func(c *config) { c.tenantShare = percent } }

// WithMaxWaiting bounds the requests that wait for the server at one time, by
// default 16,384; more are denied with ReasonOverloaded.
func WithMaxWaiting(n int) Option { return func(c *config) { c.maxWaiting = n } }

// WithoutSlots leaves concurrency limits out of all decisions: for a program that
// cannot tell when a request ends, and so could never give a slot back.
func WithoutSlots() Option { return func(c *config) { c.withoutSlots = true } }

// WithSwitchFile names a file of switches, in YAML or JSON, that win over the server's and need
// no server: "mode" (normal, allow_all or shadow_all) replaces its mode, and "deny" names tenants
// whose requests are denied besides those whom it denies. The file need not
// be there. It is read again within a second of each change; while it has a fault, what it said before
// stays in force, and Stats.SwitchFile says what is wrong. Dial refuses one that is broken already.
func WithSwitchFile(path string) Option { return func(c *config) { c.switchFile = path } }

// WithJournal keeps what is counted and not settled in files of that directory, which is this client's alone: a
// process that is killed loses nothing, and a machine that loses power at most a tenth of a second. The next
// client of that directory settles what the one before left, as does quota-agent recover. Without WithAgent
// the client goes on under the name of the one before. Dial fails with ErrJournal where the directory cannot be
// used: by two at once, on a disk that is full or read-only, on a platform that cannot map files (all but Linux).
func WithJournal(dir string) Option { return func(c *config) { c.journal = dir } }

// DefaultJournalAge is how long the logs of lives that are settled are kept, and DefaultJournalBytes how large all
// of them may be: what a ledger that went back is sent again.
const (
	DefaultJournalAge   = 72 * time.Hour
	DefaultJournalBytes = 1 << 30
)

// MinJournalSecret is how many bytes a journal's secret has at least.
const MinJournalSecret = journal.MinSecret

// WithJournalSecret has the journal's records under a MAC of that secret, of MinJournalSecret bytes at least: what somebody writes into its
// files who does not know it is not settled, but kept aside, logged, and counted (Stats.JournalRefused). The counters of the last
// seconds are not under it. Dial fails with ErrJournal where the journal was written under another secret, or has
// none: a journal gets one by a start, or quota-agent recover, without it first. Recover needs it as well. It goes with WithJournal.
func WithJournalSecret(secret []byte) Option {
	return func(c *config) { c.journalSecret = append([]byte{}, secret...) }
}

// WithJournalKept is how long a journal keeps logs of which all is acknowledged, by default 72 hours, and how many
// bytes of them at most, by default a gigabyte: the oldest go first, when a client starts and when a log is put away. A
// ledger that went back is sent again what it has forgotten of them. 0 and 0 keep none.
func WithJournalKept(age time.Duration, bytes int64) Option {
	return func(c *config) { c.journalAge, c.journalBytes = age, bytes }
}

// WithReservationTime is how long a reservation lives that is not ended, by default a
// minute, at most an hour: so long a request that was forgotten keeps its units from others.
func WithReservationTime(d time.Duration) Option {
	return func(c *config) { c.reservationTime = d }
}

// WithMaxReservations bounds the reservations that live at one time, by default 16,384;
// more requests for one are denied with ReasonOverloaded.
func WithMaxReservations(n int) Option { return func(c *config) { c.maxReservations = n } }

// WithLogger takes logs of what changes: contact lost and found, policies, fenced
// epochs. By default warnings and errors go to slog.Default().
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }
