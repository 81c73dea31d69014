package boot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/f4ee788f/quota/internal/server"
	"github.com/f4ee788f/quota/migrations"
)

const (
	// retryFirst and retryMost bound how long a failed migration is left alone.
	retryFirst = 250 * time.Millisecond
	retryMost  = 5 * time.Second
	// migrateTimeout bounds one attempt, the wait for other servers' included. The
	// first one is shorter, so that the server comes up while the database is away.
	migrateTimeout = 2 * time.Minute
	migrateFirst   = 10 * time.Second
)

// Server is a server with the engines that were opened for it.
type Server struct {
	*server.Server
	config  Config
	log     *slog.Logger
	engines *engines
	file    *policyFile
	migrate *migration
}

// Embedded is the configuration of a server that keeps its files in dir and listens on free ports of loopback. It takes
// its policy from policyFile, or the built-in one if that is empty. Server.GRPCAddr returns the address.
func Embedded(dir, policyFile string) Config {
	return Config{GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", DataDir: dir, Policy: policyFile}
}

// Log is the server's.
func (s *Server) Log() *slog.Logger { return s.log }

// New opens everything and listens. Run serves, and closes what was opened.
func New(ctx context.Context, c Config) (_ *Server, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c}
	if s.log, err = c.logger(os.Stderr); err != nil {
		return nil, err
	}
	var undo []func() error
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				err = errors.Join(err, undo[i]())
			}
		}
	}()
	tlsConfig, err := c.tls()
	if err != nil {
		return nil, err
	}
	if c.GRPC == nil {
		if c.GRPC, err = net.Listen("tcp", c.GRPCAddr); err != nil {
			return nil, fmt.Errorf("--grpc-addr: %w", err)
		}
	}
	undo = append(undo, c.GRPC.Close)
	if c.HTTP == nil {
		if c.HTTP, err = net.Listen("tcp", c.HTTPAddr); err != nil {
			return nil, fmt.Errorf("--http-addr: %w", err)
		}
	}
	undo = append(undo, c.HTTP.Close)
	s.migrate = &migration{url: c.LedgerOwnerURL, log: s.log}
	s.migrate.try(ctx, migrateFirst)
	if s.engines, err = open(ctx, &c, s.log); err != nil {
		return nil, err
	}
	undo = append(undo, s.engines.Close)
	s.file = &policyFile{path: c.Policy, shared: s.engines.shared, store: s.engines.policy, log: s.log}
	if c.Policy != "" || !s.engines.shared {
		if err := s.file.start(ctx); err != nil {
			return nil, err
		}
	}
	registry := c.Registry
	if registry == nil {
		registry = prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if c.ClockAhead > 0 {
		s.log.Warn("the calendar is ahead of the time: use this on a copy of a server's files only, and without agents", "ahead", c.ClockAhead, "now", c.now().UTC().Format(time.RFC3339))
	}
	s.Server, err = server.New(server.Config{
		Leases: s.engines.leases, Ledger: s.engines.ledger, Books: s.engines.books, Policy: s.engines.policy, Judge: s.engines.judge,
		Board: s.engines.board, SwitchFile: c.SwitchFile, PolicyFile: s.file.rules,
		GRPC: c.GRPC, HTTP: c.HTTP, TLS: tlsConfig,
		BootstrapAdminKey: c.BootstrapAdminKey, InsecureOpen: c.InsecureOpen, CertificateAgents: c.CertificateAgents, PrivateWebhooks: c.PrivateWebhooks, FoldEvery: c.FoldInterval, CloseAfter: c.CloseAfter,
		Now: c.now, Forget: s.engines.judge.Forget, LeaseStoreName: s.engines.leaseName, LedgerName: s.engines.ledgerName,
		Checks: []server.Check{{Name: "migrations", Ask: s.migrate.check}, {Name: "policy file", Ask: s.file.check}},
		Log:    s.log, Registerer: registry, Gatherer: registry,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run serves until ctx ends, drains, and closes everything in reverse. It is called once.
func (s *Server) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { s.migrate.run(background) })
	running.Go(func() { s.file.run(background) })
	err := s.Server.Run(ctx)
	stop()
	running.Wait()
	return errors.Join(err, s.engines.Close())
}

// tls is what both listeners are served with; nil without a certificate. A renewed
// certificate is served without a restart.
func (c *Config) tls() (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	pair := &renewed[*tls.Certificate]{file: c.TLSCert, load: func() (*tls.Certificate, error) {
		p, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		return &p, err
	}}
	_, err := pair.get()
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get() }}
	if c.TLSClientCA != "" {
		authorities := &renewed[*x509.CertPool]{file: c.TLSClientCA, load: func() (*x509.CertPool, error) {
			pem, err := os.ReadFile(c.TLSClientCA)
			if err != nil {
				return nil, err
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%s holds no certificate", c.TLSClientCA)
			}
			return pool, nil
		}}
		if config.ClientCAs, err = authorities.get(); err != nil {
			return nil, fmt.Errorf("--tls-client-ca: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.SessionTicketsDisabled = true           // what is resumed would be let in by the authorities of before
		config.NextProtos = []string{"h2", "http/1.1"} // listeners add theirs only to what they are given
		plain := config.Clone()
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := plain.Clone()
			now.ClientCAs, _ = authorities.get() // it was there once
			return now, nil
		}
	}
	return config, nil
}

// renewed is what files say, read again when one of them was renewed.
type renewed[T any] struct {
	file string // whose time says that they were
	load func() (T, error)

	mu    sync.Mutex
	known bool
	read  time.Time // of the file
	asked time.Time
	value T
}

func (r *renewed[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && time.Since(r.asked) < time.Second {
		return r.value, nil
	}
	r.asked = time.Now()
	info, err := os.Stat(r.file)
	if err == nil && r.known && info.ModTime().Equal(r.read) {
		return r.value, nil
	}
	var value T
	if err == nil {
		value, err = r.load()
	}
	switch {
	case err == nil:
		r.value, r.read, r.known = value, info.ModTime(), true
	case !r.known:
		return r.value, err
	}
	return r.value, nil // the old one until the new one is whole
}

// migration brings the schema up to date at the start, as the owner.
type migration struct {
	url string // empty: that is somebody else's to do
	log *slog.Logger

	mu     sync.Mutex
	reason error
}

// try attempts it once; a database that is away is tried again by run.
func (m *migration) try(ctx context.Context, within time.Duration) {
	if m.url == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := migrations.Postgres(ctx, m.url)
	if err == nil {
		m.log.Info("the ledger's schema is up to date")
	} else if m.check(ctx) == nil {
		m.log.Warn("the ledger's schema could not be migrated; trying again", "error", err)
	}
	m.mu.Lock()
	m.reason = err
	m.mu.Unlock()
}

func (m *migration) run(ctx context.Context) {
	for wait := retryFirst; m.check(ctx) != nil; wait = min(2*wait, retryMost) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		m.try(ctx, migrateTimeout)
	}
}

// check is a part of readiness.
func (m *migration) check(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason
}
