package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/granted"
	"github.com/f4ee788f/quota/internal/server/intake"
	"github.com/f4ee788f/quota/internal/server/judge"
	"github.com/f4ee788f/quota/internal/server/leasing"
	"github.com/f4ee788f/quota/internal/server/ready"
	"github.com/f4ee788f/quota/internal/server/statements"
	"github.com/f4ee788f/quota/internal/server/switches"
	"github.com/f4ee788f/quota/internal/server/upkeep"
	"github.com/f4ee788f/quota/internal/server/view"
)

const (
	// maxAnswer bounds a message that is sent: ten thousand rows of usage, or a
	// thousand tenants with their overrides.
	maxAnswer = 64 << 20
	// connectionIdle is how long a gRPC connection may go without a call.
	connectionIdle = 5 * time.Minute
	// drainTimeout bounds how long calls under way are waited for at the end. A commit
	// of the ledger takes no longer.
	drainTimeout = 15 * time.Second
	// foldTimeout bounds the last fold. What is left unfolded is read as such, and
	// folded by the next server.
	foldTimeout = 10 * time.Second
)

// ErrNoKeys refuses to serve beyond loopback without any key.
var ErrNoKeys = errors.New("server: listening beyond loopback, and there is no key: anybody could administer it; " +
	"give --bootstrap-admin-key, listen on 127.0.0.1, or insist with --insecure-open")

// Config is what a server is made of. Leases, Ledger, Policy, GRPC and HTTP are
// required; New takes the listeners over, the stores stay the caller's to close.
type Config struct {
	// Leases may also have Ping(context.Context) error, for readiness. They may have Run(context.Context,
	// func(lease.Loss), func(int64)) error: it tells what the store forgot, and the time before which leases may be
	// forgotten.
	Leases lease.Store
	Ledger ledger.Store
	Policy policystore.Store
	// Books are the ledger's for operators; nil serves none of LedgerService.
	Books ledger.Books

	// Judge answers the ledger's questions about rows; nil where it accepts all. The server has it learn what rows
	// name.
	Judge *judge.Judge

	// Board keeps a second copy of the switches, for when the policy store is away; nil for none.
	Board switches.Board
	// SwitchFile is a file of switches that override those set, for this server's agents; empty for none.
	SwitchFile string
	// PolicyFile returns the path of the policy file that rules on this server, if it differs from the document; else
	// nothing. Nil where there is no file.
	PolicyFile func(doc *policy.Document) string

	GRPC net.Listener
	HTTP net.Listener
	// TLS serves both listeners with TLS; nil without. Where it asks for client
	// certificates, health and metrics are served without one.
	TLS *tls.Config

	// BootstrapAdminKey is accepted as an admin's key besides those stored; empty for none.
	BootstrapAdminKey string
	// CertificateAgents requires that an agent's id is one of the names of its client certificate.
	CertificateAgents bool
	// InsecureOpen lets everybody in, whatever keys there are.
	InsecureOpen bool
	// CloseAfter is how long after a period's end its statement is closed. With 0 only CloseStatement closes it.
	CloseAfter time.Duration
	// PrivateWebhooks lets webhooks reach private addresses.
	PrivateWebhooks bool
	// Webhooks is how webhooks are reached; nil for the network.
	Webhooks http.RoundTripper
	// FoldEvery is how often reports are folded; 0 for the ledger's default.
	FoldEvery time.Duration

	// Now is the server's time; nil for the clock's.
	Now func() time.Time
	// Forget is told that the ledger or the policy store is another than before, so that what is remembered of it is
	// read again. Nil for nobody.
	Forget func()

	LeaseStoreName string // for people: memory or redis
	LedgerName     string // sqlite or postgres

	// Checks are further parts of readiness.
	Checks []Check

	Log        *slog.Logger          // nil is silent
	Registerer prometheus.Registerer // nil keeps metrics to this server
	Gatherer   prometheus.Gatherer   // what /metrics shows; nil for Registerer's
}

// Check is a part of readiness: Ask says why it does not work, or nil. It is asked
// every second, with two seconds to answer.
type Check struct {
	Name string
	Ask  func(context.Context) error
}

// Server is a quota server. It keeps nothing that its stores do not have.
type Server struct {
	config   Config
	log      *slog.Logger
	keys     *authn.Keyring
	view     *view.View
	switches *switches.Switchboard
	ready    *ready.Readiness
	health   *health.Server
	grpc     *grpc.Server
	http     *http.Server
	folder   *ledger.Folder
	closer   *statements.Closer  // nil where statements are not closed by themselves
	alerts   *alert.Runner       // nil without books, or where the policy store keeps no events
	tally    *granted.Tally      // nil without books, as is backlog
	over     *granted.Overdrafts // nil without books or a judge
	backlog  *upkeep.Backlog
	leasing  *leasing.Service
	intake   *intake.Service
	losses   *prometheus.CounterVec // noticed
	stopping chan struct{}
}

// New builds a server. It starts nothing: Run does.
func New(c Config) (*Server, error) {
	if c.Leases == nil || c.Ledger == nil || c.Policy == nil || c.GRPC == nil || c.HTTP == nil {
		return nil, errors.New("server: Leases, Ledger, Policy, GRPC and HTTP are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		r := prometheus.NewRegistry()
		c.Registerer, c.Gatherer = r, r
	}
	if c.Gatherer == nil {
		g, ok := c.Registerer.(prometheus.Gatherer)
		if !ok {
			return nil, errors.New("server: a Registerer that cannot gather needs a Gatherer beside it")
		}
		c.Gatherer = g
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Forget == nil {
		c.Forget = func() {}
	}
	s := &Server{config: c, log: c.Log, stopping: make(chan struct{})}
	if err := s.build(); err != nil {
		return nil, err
	}
	return s, nil
}

// GRPCAddr is the address that gRPC is served on.
func (s *Server) GRPCAddr() string { return s.config.GRPC.Addr().String() }

// HTTPAddr is the address of health, metrics and REST.
func (s *Server) HTTPAddr() string { return s.config.HTTP.Addr().String() }

// Run serves until ctx ends, then drains: streams end, calls under way are
// answered, settled reports are folded. It returns once all that it started has
// ended: nil, or why it could not serve.
func (s *Server) Run(ctx context.Context) error {
	if err := s.first(ctx); err != nil {
		s.grpc.Stop()
		return errors.Join(err, s.config.GRPC.Close(), s.config.HTTP.Close())
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	failed := make(chan error, 2)
	running.Go(func() { _ = s.view.Run(background) })
	running.Go(func() { _ = s.switches.Run(background) })
	running.Go(func() { _ = s.ready.Run(background) })
	running.Go(func() { _ = s.folder.Run(background) })
	if s.tally != nil {
		running.Go(func() { s.tally.Run(background) })
		running.Go(func() { s.backlog.Run(background) })
		running.Go(func() { upkeep.NewWeights(s.config.Books, s.log).Run(background) })
	}
	if s.closer != nil {
		running.Go(func() { s.closer.Run(background) })
	}
	if s.alerts != nil {
		running.Go(func() { s.alerts.Run(background) })
	}
	running.Go(func() { s.leasing.Run(background) })
	if l, ok := s.config.Leases.(leasing.Watched); ok {
		running.Go(func() { _ = l.Run(background, s.forgot, s.view.ForgotBefore) })
	}
	running.Go(func() {
		if err := s.grpc.Serve(s.config.GRPC); err != nil {
			failed <- fmt.Errorf("server: gRPC on %s: %w", s.GRPCAddr(), err)
		}
	})
	running.Go(func() {
		if err := s.serveHTTP(); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("server: HTTP on %s: %w", s.HTTPAddr(), err)
		}
	})
	s.log.Info("serving", "grpc", s.GRPCAddr(), "http", s.HTTPAddr(), "lease_store", s.config.LeaseStoreName, "ledger", s.config.LedgerName)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain()
	stop()
	running.Wait()
	s.foldRest()
	s.log.Info("stopped")
	return err
}

// forgot counts a loss of the lease store's. Every server that notices counts it.
func (s *Server) forgot(l lease.Loss) {
	s.losses.WithLabelValues(string(l.Why)).Inc()
	s.log.Warn("the lease store forgot; buckets begin anew, held until their leases are declared and the ledger has said what was used",
		"noticed", l.Why, "part", l.Part)
}

func (s *Server) serveHTTP() error {
	if s.config.TLS != nil {
		return s.http.ServeTLS(s.config.HTTP, "", "")
	}
	return s.http.Serve(s.config.HTTP)
}

// first reads the policy store once. So a server whose stores are there can answer its first call, and does not refuse
// everybody by mistake. A store that is away is no error: the server looks for it until it is there.
func (s *Server) first(ctx context.Context) error {
	s.switches.Round(ctx) // before the first agent is told anything
	if err := s.view.Look(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("starting without the policy store; nobody is let in before the keys are read", "error", err)
	}
	switch {
	case s.keys.InsecurelyOpen():
		s.log.Warn("open: everybody is let in without a key (--insecure-open)")
	case s.keys.Open():
		s.log.Warn("open: no key was made yet, so everybody on this machine is let in; the first `quotactl key create` ends that")
	case s.keys.Keyless():
		return ErrNoKeys
	}
	return nil
}

// drain ends streams, answers what is under way, and takes nothing more.
func (s *Server) drain() {
	s.log.Info("stopping: draining calls")
	s.health.Shutdown()
	s.ready.Set("server", "stopping")
	close(s.stopping)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.grpc.GracefulStop()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("REST calls were cut", "error", err)
		_ = s.http.Close() // it is ending anyway
	}
	select {
	case <-drained:
	case <-ctx.Done():
		s.log.Warn("calls were cut; their agents send again")
		s.grpc.Stop()
		<-drained
	}
}

// foldRest folds what was settled last, if this server leads.
func (s *Server) foldRest() {
	ctx, cancel := context.WithTimeout(context.Background(), foldTimeout)
	defer cancel()
	if s.tally != nil {
		_ = s.tally.Flush(ctx) // where it fails, it is said
	}
	for {
		_, left, err := s.config.Ledger.Fold(ctx, time.Now())
		if err != nil {
			s.log.Warn("the last reports are not folded yet; they are settled, and folded by the next server", "error", err)
			return
		}
		if !left {
			return
		}
	}
}
