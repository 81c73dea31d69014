package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/connect"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/session"
)

// FailureMode says how requests are decided while the policy or their tenant is not known, because the server was never
// reached.
type FailureMode uint8

const (
	// FailClosed denies with ReasonUnknown. It is the default: without a policy usage can be neither limited nor
	// billed.
	FailClosed FailureMode = iota
	// FailOpen admits with ReasonUnknown. Such units are counted in Stats.Unaccounted and appear in no ledger.
	FailOpen
)

// Defaults and bounds of the options.
const (
	DefaultMaxBuckets     = 262_144          // about 150 MB, and as much again for remembered requests
	DefaultTenantShare    = 80               // percent: one tenant alone leaves a fifth free
	DefaultMaxWait        = time.Second      // a few round trips and a retry
	DefaultFirstWait      = time.Second      // what a process start can spare
	DefaultReportInterval = 10 * time.Second // what a crash without a journal may lose
	DefaultIdle           = 2 * time.Minute
	DefaultMaxWaiting     = 16_384
	DefaultJournalAge     = 72 * time.Hour
	DefaultJournalBytes   = 1 << 30
	MinJournalSecret      = journal.MinSecret // bytes
)

// maxReservations bounds WithMaxReservations: each takes some hundred bytes, and four more are remembered for it.
const maxReservations = 1 << 24

// config is the values that options change: the session's, and those that only the client uses.
type config struct {
	session         session.Config
	connect         connect.Options
	failure         FailureMode
	firstWait       time.Duration
	maxWait         time.Duration
	maxWaiting      int
	maxReservations int
	reservationTime time.Duration
	eventsKnown     int
	eventsAnyhow    bool // without a journal too
}

func defaults() config {
	return config{
		session: session.Config{
			RenewTimeout:   2 * time.Second,  // beyond it a server is as good as away
			CloseWait:      10 * time.Second, // short of the half minute that many give a process to end
			ReportInterval: DefaultReportInterval, Idle: DefaultIdle,
			MaxBuckets: DefaultMaxBuckets, TenantShare: DefaultTenantShare,
			JournalAge: DefaultJournalAge, JournalBytes: DefaultJournalBytes,
		},
		firstWait: DefaultFirstWait, maxWait: DefaultMaxWait, maxWaiting: DefaultMaxWaiting,
		maxReservations: 16_384, reservationTime: time.Minute, eventsKnown: DefaultEventsKnown,
	}
}

func (c *config) validate() error {
	var faults []error
	check := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: %s", ErrOption, what))
		}
	}
	s := &c.session
	check(limit.ValidAgent(s.Agent) || s.Agent == "" && s.Journal != "", "an agent id has 1 to 128 bytes of A-Za-z0-9._:-")
	check(!strings.ContainsAny(c.connect.Key, "\r\n"), "a key is one line")
	check(c.failure <= FailOpen, "no such failure mode")
	check(c.firstWait >= 0, "the first wait is negative")
	check(c.maxWait > 0, "the longest wait must be above 0")
	check(s.RenewTimeout > 0, "the renewal's time must be above 0")
	check(s.ReportInterval > 0, "the report interval must be above 0")
	check(s.CloseWait > 0, "the time to close must be above 0")
	check(s.Idle > 0, "the idle time must be above 0")
	check(s.MaxBuckets > 0, "at least one bucket must be allowed")
	check(s.TenantShare >= 1 && s.TenantShare <= 100, "a tenant's share of the buckets is from 1 to 100 percent")
	check(c.maxWaiting >= 0, "the number of waiting requests is negative")
	check(s.JournalSecret == nil || s.Journal != "", "a secret of the journal is given, and no journal")
	check(s.JournalSecret == nil || len(s.JournalSecret) >= MinJournalSecret, "the journal's secret is under 16 bytes")
	check(s.JournalAge >= 0 && s.JournalBytes >= 0, "how long or how much a journal keeps is negative")
	check(c.maxReservations >= 0 && c.maxReservations <= maxReservations, "the number of reservations is from 0 to 16,777,216")
	check(c.reservationTime > 0 && c.reservationTime <= time.Hour, "a reservation's time is above 0, at most an hour")
	check(c.eventsKnown > 0 && c.eventsKnown <= maxEventsKnown, "the number of events that are known is from 1 to 16,777,216")
	return errors.Join(faults...)
}

// Option changes a default of Dial. Dial fails with ErrOption where a value is out of range.
type Option func(*config)

// WithAgent names this client in the ledger and in leases. The id is 1 to 128 bytes of [A-Za-z0-9._:-], stable over
// restarts, and never used by two processes at once. By default it is made of the host's name, the process id and a
// random number.
func WithAgent(id string) Option { return func(c *config) { c.session.Agent = id } }

// WithKey sends an agent key as a bearer token with every call. Without TLS it travels in the clear, which suits
// loopback and Unix sockets only.
func WithKey(key string) Option { return func(c *config) { c.connect.Key = key } }

// WithTLS talks TLS to the server. Without it the connection is plain.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.connect.TLS = t } }

// WithDialer connects in place of package net: for tests and tunnels.
func WithDialer(d func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(c *config) { c.connect.Dialer = d }
}

// WithFailureMode says how to decide while the policy or the tenant is not known. The default is FailClosed.
func WithFailureMode(m FailureMode) Option { return func(c *config) { c.failure = m } }

// WithFirstWait bounds how long Dial waits for the first policy: by default one second. 0 does not wait.
func WithFirstWait(d time.Duration) Option { return func(c *config) { c.firstWait = d } }

// WithMaxWait bounds how long a request waits for the server: by default one second, above 0. Its context may end
// earlier.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithRenewTimeout bounds one call to the server: by default two seconds, above 0. Where the server answers quickly the
// bound is lower, down to a quarter of a second, because leases are short.
func WithRenewTimeout(d time.Duration) Option { return func(c *config) { c.session.RenewTimeout = d } }

// WithReportInterval is how often usage is reported: by default every ten seconds, above 0. Intervals vary by a tenth,
// so that clients that began together do not report together.
func WithReportInterval(d time.Duration) Option {
	return func(c *config) { c.session.ReportInterval = d }
}

// WithCloseWait bounds Close: by default ten seconds, above 0. Its context may end earlier.
func WithCloseWait(d time.Duration) Option { return func(c *config) { c.session.CloseWait = d } }

// WithIdle is how long a bucket may be unused before its lease goes back and its memory is freed: by default two
// minutes, above 0.
func WithIdle(d time.Duration) Option { return func(c *config) { c.session.Idle = d } }

// WithMaxBuckets bounds the buckets in memory: by default 262,144, at least 1. When few are free, idle buckets make
// room. While none is idle, requests that need a new bucket are denied with ReasonOverloaded. See WithTenantShare.
func WithMaxBuckets(n int) Option { return func(c *config) { c.session.MaxBuckets = n } }

// WithTenantShare bounds the buckets that one tenant may have while no other has any: 1 to 100 percent of
// WithMaxBuckets, by default 80. 100 is no bound. Several tenants that want more get equal shares. A part stays free
// for tenants with few: beside n large ones it is 1/(1+4n) at 80 percent. A tenant above its share gives up the buckets
// that were not used for longest. The buckets of a top-level limit that is not by tenant count together, as one
// tenant's.
func WithTenantShare(percent int) Option { return func(c *config) { c.session.TenantShare = percent } }

// WithMaxWaiting bounds the requests that wait at one time: by default 16,384, at least 0. More are denied with
// ReasonOverloaded.
func WithMaxWaiting(n int) Option { return func(c *config) { c.maxWaiting = n } }

// WithoutSlots leaves concurrency limits out of all decisions. It is for a program that cannot tell when a request
// ends, and so could never give a slot back.
func WithoutSlots() Option { return func(c *config) { c.session.WithoutSlots = true } }

// WithSwitchFile names a file of switches, in YAML or JSON, that win over the server's and need no server. "mode"
// (normal, allow_all or shadow_all) replaces the server's mode. "deny" names more tenants whose requests are denied.
//
// The file need not be there. It is read again within a second of each change. While it has a fault, its last valid
// text stays in force, and Stats.SwitchFile says what is wrong. Dial refuses a file with a fault.
func WithSwitchFile(path string) Option { return func(c *config) { c.session.SwitchFile = path } }

// WithJournal keeps usage that is not settled in files of a directory, which is this client's alone. A process that is
// killed loses nothing; a machine that loses power loses at most a tenth of a second. The next client of the directory
// settles usage that the one before left, as does quota-agent recover. Without WithAgent it goes on under the same
// agent id.
//
// Dial fails with ErrJournal if the directory cannot be used. It cannot if another client uses it, if the disk is full
// or read-only, or on a platform other than Linux.
func WithJournal(dir string) Option { return func(c *config) { c.session.Journal = dir } }

// WithJournalSecret authenticates the journal's records with a secret of at least MinJournalSecret bytes. Records that
// do not verify are not settled. They are kept aside, logged, and counted in Stats.JournalRefused. Usage of the last
// second before a kill is not sealed yet: it goes to quarantine (Stats.UnitsUnsealed).
//
// It goes with WithJournal; Recover needs it as well. Dial fails with ErrJournal where the journal has another secret,
// or none. To give a journal its first secret, settle it without one before: by a start, or by quota-agent recover.
func WithJournalSecret(secret []byte) Option {
	return func(c *config) { c.session.JournalSecret = append([]byte{}, secret...) }
}

// WithJournalKept bounds the logs that a journal keeps after all of them is acknowledged: by default 72 hours and a
// gigabyte, each at least 0. The oldest go first, when a client starts and when a log is put away. A ledger that was
// restored to an earlier state is sent their usage again. 0 and 0 keep none.
func WithJournalKept(age time.Duration, bytes int64) Option {
	return func(c *config) { c.session.JournalAge, c.session.JournalBytes = age, bytes }
}

// WithReservationTime is how long a reservation lives if it is not ended: by default a minute, above 0, at most an
// hour. For so long a forgotten request keeps its units from others.
func WithReservationTime(d time.Duration) Option { return func(c *config) { c.reservationTime = d } }

// WithMaxReservations bounds the reservations that live at one time: by default 16,384, at least 0. One tenant may have
// WithTenantShare percent of them. Requests for more are denied with ReasonOverloaded. Four times as many, of one tenant
// likewise, are known after they ended: with more, the first to end are forgotten before ReservationKnown is over.
func WithMaxReservations(n int) Option { return func(c *config) { c.maxReservations = n } }

// WithLogger takes logs of changes: contact lost and found, policies, fenced epochs. By default warnings and errors go
// to slog.Default().
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.session.Log = l } }
