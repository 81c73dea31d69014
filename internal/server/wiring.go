package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/f4ee788f/quota/internal/alert"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/internal/server/admin"
	"github.com/f4ee788f/quota/internal/server/alerts"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/books"
	"github.com/f4ee788f/quota/internal/server/granted"
	"github.com/f4ee788f/quota/internal/server/intake"
	"github.com/f4ee788f/quota/internal/server/leasing"
	"github.com/f4ee788f/quota/internal/server/ready"
	"github.com/f4ee788f/quota/internal/server/rest"
	"github.com/f4ee788f/quota/internal/server/statements"
	"github.com/f4ee788f/quota/internal/server/switches"
	"github.com/f4ee788f/quota/internal/server/upkeep"
	"github.com/f4ee788f/quota/internal/server/usage"
	"github.com/f4ee788f/quota/internal/server/view"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// grpcBounds and httpBounds bound the connections of the two listeners. A connection is known by its first call with a
// good key.
var (
	grpcBounds = listen.Bounds{Strangers: 512, StrangersOfPeer: 64, Known: 16_384, KnownOfPeer: 4096}
	httpBounds = listen.Bounds{Strangers: 512, StrangersOfPeer: 64, Known: 4096, KnownOfPeer: 1024}
)

// build builds the rooms, and wires them.
func (s *Server) build() error {
	c := &s.config
	c.GRPC, c.HTTP = listen.Bounded(c.GRPC, grpcBounds), listen.Bounded(c.HTTP, httpBounds)
	wrap := func(err error) error { return fmt.Errorf("server: metrics: %w", err) }
	s.losses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quota_server_lease_store_losses_total", Help: "Losses of parts of the lease store that this server noticed: emptied, behind, another or evicted.",
	}, []string{"noticed"})
	for _, w := range lease.Whys() {
		s.losses.WithLabelValues(string(w))
	}
	err := c.Registerer.Register(s.losses)
	if err != nil {
		return wrap(err)
	}
	m, err := leasing.NewMetrics(c.Registerer)
	if err != nil {
		return wrap(err)
	}
	s.keys, err = authn.NewKeyring(authn.KeysConfig{
		InsecureOpen: c.InsecureOpen, MayOpen: local(c.GRPC.Addr()) && local(c.HTTP.Addr()), Bootstrap: c.BootstrapAdminKey,
		CertificateAgents: c.CertificateAgents, Now: c.Now, Log: c.Log,
	}, c.Registerer)
	if err != nil {
		return wrap(err)
	}
	if s.view, err = view.New(c.Policy, s.keys, c.Now, c.Log, c.Registerer); err != nil {
		return wrap(err)
	}
	s.keys.Follow(s.view)
	s.switches = switches.New(c.Policy, c.Board, c.SwitchFile, s.view, c.Log)
	s.view.Tell(view.Hooks{Switches: s.switches.FromStore, Replaced: c.Forget, Rules: m.Follow})
	if c.Books != nil {
		if s.tally, err = granted.NewTally(c.Books, m.Names, c.Log, c.Registerer); err != nil {
			return wrap(err)
		}
		if c.Judge != nil {
			if s.over, err = granted.NewOverdrafts(c.Books, c.Judge, s.view, s.tally, c.Log, c.Now, c.Registerer); err != nil {
				return wrap(err)
			}
		}
		if s.backlog, err = upkeep.NewBacklog(c.Books, c.Registerer); err != nil {
			return wrap(err)
		}
	}
	there := ready.NewLedger(c.Ledger.Ping)
	s.leasing = leasing.New(leasing.Config{
		Leases: c.Leases, View: s.view, Ledger: c.Ledger, Lasts: there, Policy: c.Policy, Grants: s.tally, Metrics: m, Now: c.Now, Stopping: s.stopping,
	})
	s.intake, err = intake.New(intake.Config{
		Ledger: c.Ledger, Judge: c.Judge, Tally: s.tally, Overdrafts: s.over, Forget: s.forgetLedger, Log: c.Log, Registerer: c.Registerer,
	})
	if err != nil {
		return wrap(err)
	}
	s.health = health.NewServer()
	if s.ready, err = ready.New(c.Log, c.Registerer, s.announce, s.parts(there.Part())...); err != nil {
		return wrap(err)
	}
	folds, err := upkeep.NewFolds(c.Ledger, c.Registerer)
	if err != nil {
		return wrap(err)
	}
	s.folder = ledger.NewFolder(folds, c.FoldEvery, c.Log)
	return s.serve()
}

// serve builds both servers over the same services and the same gate.
func (s *Server) serve() error {
	c := s.config
	gate, err := authn.NewGate(s.keys, c.Log, c.Registerer, s.stopping)
	if err != nil {
		return fmt.Errorf("server: metrics: %w", err)
	}
	options := append(gate.Options(),
		grpc.MaxRecvMsgSize(wire.MaxMessage),
		grpc.MaxSendMsgSize(maxAnswer),
		grpc.MaxHeaderListSize(listen.MaxHeaderList),
		grpc.MaxConcurrentStreams(128), // of one connection: an agent has a handful
		grpc.ConnectionTimeout(20*time.Second),
		// A gateway that vanished is found within 40 s, and its streams end. An agent's connection always has a stream.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: connectionIdle, Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	quotav1.RegisterLeaseServiceServer(s.grpc, &leaseRPCs{leasing: s.leasing, intake: s.intake})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	calls := rest.NewInProcess(gate.Unary)
	reports := usage.New(c.Ledger, c.Policy, c.Books, s.stopping)
	if err := s.register(reports, s.grpc, calls); err != nil {
		return err
	}
	certificates := c.TLS != nil && c.TLS.ClientAuth == tls.RequireAndVerifyClientCert
	handler, err := rest.NewHandler(rest.Config{
		Calls: calls, Serve: gate.Serve, Export: reports.Export, Why: s.unready, Gatherer: c.Gatherer, Keys: s.keys, Certificates: certificates,
	})
	if err != nil {
		return fmt.Errorf("server: REST: %w", err)
	}
	s.http = listen.HTTP(handler)
	s.http.WriteTimeout = rest.Timeout + 5*time.Second
	s.http.ErrorLog = slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)
	if c.TLS != nil {
		s.http.TLSConfig = c.TLS.Clone()
		if certificates { // probes have none; REST asks for one itself
			s.http.TLSConfig.ClientAuth = tls.VerifyClientCertIfGiven
			if of := c.TLS.GetConfigForClient; of != nil {
				s.http.TLSConfig.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					config, err := of(h)
					if config != nil {
						config = config.Clone()
						config.ClientAuth = tls.VerifyClientCertIfGiven
					}
					return config, err
				}
			}
		}
	}
	return nil
}

// register registers what people and programs call beside agents, in all of to.
func (s *Server) register(reports *usage.Service, to ...grpc.ServiceRegistrar) error {
	c := s.config
	billed := statements.New(c.Books, c.Policy, c.Now)
	operators := admin.New(admin.Config{
		Store: c.Policy, Ledger: c.Ledger, Keys: s.keys, View: s.view, Switches: s.switches, PeriodAt: billed.PeriodAt, Now: c.Now,
		PolicyFile: c.PolicyFile, LeaseStore: c.LeaseStoreName, LedgerName: c.LedgerName,
	})
	for _, r := range to {
		quotav1.RegisterAdminServiceServer(r, operators)
		quotav1.RegisterUsageServiceServer(r, reports)
	}
	if c.Books == nil {
		return nil
	}
	of := books.Config{Books: c.Books, Policy: c.Policy, Versions: billed, Tally: s.tally, Stopping: s.stopping}
	if c.Judge != nil {
		of.Judge = c.Judge
	}
	keepers := books.New(of)
	for _, r := range to {
		quotav1.RegisterLedgerServiceServer(r, keepers)
		quotav1.RegisterStatementServiceServer(r, billed)
	}
	var err error
	if c.CloseAfter > 0 {
		if s.closer, err = statements.NewCloser(billed, c.CloseAfter, c.Log, c.Registerer); err != nil {
			return fmt.Errorf("server: metrics: %w", err)
		}
	}
	store, ok := c.Policy.(alert.Store)
	if !ok {
		return nil
	}
	events, runner, err := alerts.New(alerts.Config{
		Store: store, Books: c.Books, Policy: c.Policy, View: s.view, Spending: billed.Spending,
		PrivateWebhooks: c.PrivateWebhooks, Webhooks: c.Webhooks, Stopping: s.stopping, Log: c.Log, Registerer: c.Registerer,
	})
	if err != nil {
		return fmt.Errorf("server: metrics: %w", err)
	}
	s.alerts = runner
	for _, r := range to {
		quotav1.RegisterAlertServiceServer(r, events)
	}
	return nil
}

// forgetLedger forgets what this server knows of the ledger and the policy store before a restore.
func (s *Server) forgetLedger() {
	s.leasing.Forget()
	s.over.Forget()
	s.config.Forget()
}

// local reports whether only this machine can reach the address.
func local(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback() // sockets and in-process listeners are local
}
