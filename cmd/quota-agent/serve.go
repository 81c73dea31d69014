package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/doors"
	"github.com/f4ee788f/quota/internal/hugepages"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
	ratelimitv1 "github.com/f4ee788f/quota/proto/kuadrant/service/ratelimit/v1"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// drainWait bounds how long requests under way may take once the agent ends.
	drainWait = 5 * time.Second
	// idleWait bounds connections that say nothing.
	idleWait = listen.IdleWait
	// writeWait bounds the time from an HTTP request to the end of its answer. A check takes a second at most, a scrape
	// a few. A client that does not read is not kept for longer.
	writeWait = 30 * time.Second
	// maxStreams bounds the calls under way of one connection: Envoy has as many by default.
	maxStreams = 1024
	// maxMessage bounds a gRPC request: descriptors of a few hundred bytes each.
	maxMessage = 1 << 20
)

// serve runs the agent until ctx ends. It opens the doors, connects to the server, and serves; then it closes the
// doors, and settles what was admitted.
func serve(ctx context.Context, c config, log *slog.Logger) (err error) {
	security, err := c.tls()
	if err != nil {
		return err
	}
	secret, err := c.secret()
	if err != nil {
		return err
	}
	shared, err := c.peerSecret()
	if err != nil {
		return err
	}
	attributes, err := doors.ParseAttributes(c.attributes)
	if err != nil {
		return err
	}
	mapping, err := c.events.mapping()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics, err := doors.NewMetrics(registry)
	if err != nil {
		return err
	}
	// The addresses are taken first, so that a second agent of the same name and doors ends here, before it acts as
	// that agent.
	httpDoor, err := open(c.httpAddr, httpBounds)
	if err != nil {
		return err
	}
	grpcDoor, err := open(c.grpcAddr, grpcBounds)
	if err != nil {
		return errors.Join(err, closeDoor(httpDoor))
	}

	// No door learns when a request ends.
	opts := append(reach(c, security, secret, log), client.WithAgent(c.agentID), client.WithoutSlots(), client.WithCloseWait(c.closeWait),
		client.WithMaxBuckets(c.buckets), client.WithTenantShare(c.share))
	if c.journal != "" {
		opts = append(opts, client.WithJournal(c.journal), client.WithJournalKept(c.journalAge, c.journalMB<<20))
	}
	opts = append(opts, c.events.options()...)
	if c.switchFile != "" {
		opts = append(opts, client.WithSwitchFile(c.switchFile))
	}
	if c.allowBlind {
		opts = append(opts, client.WithFailureMode(client.FailOpen))
	}
	quota, err := client.Dial(ctx, c.server, opts...)
	if err != nil {
		return errors.Join(err, closeDoor(httpDoor), closeDoor(grpcDoor))
	}
	defer func() {
		// ctx has ended: what was admitted is settled within --close-wait.
		if e := quota.Close(context.WithoutCancel(ctx)); e != nil {
			err = errors.Join(err, e)
			return
		}
		log.Info("quota-agent settled all usage", "units", quota.Stats().UnitsSettled)
	}()
	registry.MustRegister(newStats(quota))
	key, err := idKey(shared, c.journal)
	if err != nil {
		return errors.Join(err, closeDoor(httpDoor), closeDoor(grpcDoor))
	}
	reservations := doors.NewReservations(quota, key, c.advertise)
	defer reservations.Close()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { hugepages.Follow(ctx); return nil })
	if httpDoor != nil {
		check := doors.NewCheck(quota, doors.CheckConfig{Attributes: attributes, Require: c.require, CostHeader: c.costHeader, AllowFree: c.allowFree, Unknown: c.unknown, OpenAI: c.openAI}, metrics)
		json := doors.NewJSON(quota, reservations, doors.JSONConfig{Unknown: c.unknown}, metrics)
		events := doors.NewEvents(quota, mapping, metrics)
		group.Go(func() error { return serveHTTP(ctx, httpDoor, handler(check, json, events, quota, registry)) })
		log.Info("quota-agent serves checks and JSON over HTTP", "address", httpDoor.Addr().String())
	}
	if grpcDoor != nil {
		envoy := doors.NewEnvoy(quota, metrics, log)
		envoy.OpenAI = c.openAI
		group.Go(func() error { envoy.Run(ctx); return nil })
		group.Go(func() error {
			defer envoy.End()
			return serveGRPC(ctx, grpcDoor, envoy, doors.NewKuadrant(envoy, reservations), doors.NewDecide(quota, reservations, metrics))
		})
		log.Info("quota-agent serves Envoy's rate limit service and thin clients", "address", grpcDoor.Addr().String())
	}
	log.Info("quota-agent is up", "agent", quota.Agent(), "server", c.server)
	return group.Wait()
}

// idKey is what reservations' ids are sealed under: the secret that agents share, else one of this agent. Only a journal
// keeps that for the next start.
func idKey(shared []byte, journal string) (doors.IDKey, error) {
	switch {
	case shared != nil:
		return doors.NewIDKey(shared), nil
	case journal != "":
		return doors.KeptIDKey(journal) // the client has it to itself
	}
	return doors.RandomIDKey(), nil
}

// reach is the options for reaching the server.
func reach(c config, security *tls.Config, secret []byte, log *slog.Logger) []client.Option {
	opts := []client.Option{client.WithLogger(log)}
	if c.key != "" {
		opts = append(opts, client.WithKey(c.key))
	}
	if security != nil {
		opts = append(opts, client.WithTLS(security))
	}
	if secret != nil {
		opts = append(opts, client.WithJournalSecret(secret))
	}
	return opts
}

// Bounds of the doors' connections. A connection is known by its first request, question or call, because nobody has a
// key here. A node's hundreds of thin clients connect before they have a question.
var (
	httpBounds = listen.Bounds{Strangers: 512, StrangersOfPeer: 64, Known: 16_384, KnownOfPeer: 4096}
	grpcBounds = listen.Bounds{Strangers: 2048, StrangersOfPeer: 512, Known: 16_384, KnownOfPeer: 4096}
)

func open(addr string, b listen.Bounds) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := doors.Listen(addr)
	if err != nil || l.Addr().Network() == "unix" { // whose file says who may connect
		return l, err
	}
	return listen.Bounded(l, b), nil
}

func closeDoor(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

func handler(check, json, events http.Handler, quota *client.Client, gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"alive": true})
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, reason := readiness(quota.Stats())
		code := http.StatusOK
		if !ready {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, map[string]any{"ready": ready, "reason": reason})
	})
	mux.Handle("/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.Handle(doors.EventsPath, events)
	for _, path := range doors.JSONRoutes() {
		mux.Handle(path, json)
	}
	// A check's path is the client's, as it was sent. The mux would answer an unclean path with a redirect.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !listen.KnownBy(r.Context()) {
			panic(http.ErrAbortHandler) // the connection is closed already
		}
		if p := r.URL.Path; p == "/check" || strings.HasPrefix(p, "/check/") {
			check.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// readiness is whether the agent can decide. It stays ready when contact is lost, because leases go on and limits'
// on_outage decides. That is better than an agent that its gateway does not ask.
func readiness(s client.Stats) (ready bool, reason string) {
	switch {
	case s.PolicyVersion == 0:
		return false, "no policy is known yet: no server was reached, or none takes the key: " + cmp.Or(s.Unreachable, "none has answered")
	case s.Lost:
		return true, "the server is out of contact: leases go on"
	}
	return true, ""
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the caller has gone away; nobody is left to be told
}

func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := listen.HTTP(h)
	s.WriteTimeout = writeWait
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("http: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWait)
	defer cancel()
	err := s.Shutdown(drain)
	if err != nil {
		err = errors.Join(fmt.Errorf("http: %w", err), s.Close())
	}
	if stopped := <-served; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return err
}

func serveGRPC(ctx context.Context, l net.Listener, envoy rls.RateLimitServiceServer, kuadrant ratelimitv1.RateLimitServiceServer, decide *doors.Decide) error {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(ask.Codec{}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(listen.MaxHeaderList),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StreamInterceptor(listen.NewHealth().Health),
		// Windows of this size are never waited for. Without them gRPC measures each line with a ping for every few
		// messages.
		grpc.StaticStreamWindowSize(maxMessage), grpc.StaticConnWindowSize(maxMessage),
		// These goroutines stay, with a stack that is grown already. Under more calls than that, a call has a goroutine
		// of its own.
		grpc.NumStreamWorkers(uint32(4*runtime.GOMAXPROCS(0))),
		// A stream of a thin client has answers to write when Stop ends it.
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: listen.CallWait, Time: idleWait}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	rls.RegisterRateLimitServiceServer(s, envoy)
	ratelimitv1.RegisterRateLimitServiceServer(s, kuadrant)
	quotav1.RegisterDecisionServiceServer(s, decide)
	h := health.NewServer()
	healthv1.RegisterHealthServer(s, h)
	h.SetServingStatus(quotav1.DecisionService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	h.SetServingStatus(rls.RateLimitService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	h.SetServingStatus(ratelimitv1.RateLimitService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	lines := doors.NewLines(l, decide)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lines) }()
	select {
	case err := <-served:
		lines.Kill()
		lines.Wait()
		return fmt.Errorf("grpc: %w", err)
	case <-ctx.Done():
	}
	h.Shutdown()
	decide.Close()
	// GracefulStop waits for ever for a call that hangs; Stop ends that wait.
	force := time.AfterFunc(drainWait, func() { lines.Kill(); s.Stop() })
	defer force.Stop()
	s.GracefulStop()
	lines.Wait()
	if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // told to stop before it began
		return err
	}
	return nil
}
