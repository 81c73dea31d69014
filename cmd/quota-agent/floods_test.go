package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/agentclient"
)

// freeAddress is one of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Doors go on serving those who ask, and whoever looks after the agent, whatever idle connections, headers and streams others open.
func TestDoorsAreBounded(t *testing.T) {
	server := startServer(t)
	httpAddr, grpcAddr := freeAddress(t), freeAddress(t)
	startAgent(t, "--server", server.GRPCAddr(), "--http-addr", httpAddr, "--grpc-addr", grpcAddr, "--agent-id", "floods")
	asker := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ready := func() bool {
		answer, err := asker.Get("http://" + httpAddr + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	if !wait(t, time.Minute, nil, ready) {
		t.Fatal("the agent is not ready")
	}
	asks := func(when string) {
		t.Helper()
		thin, err := agentclient.Dial(t.Context(), grpcAddr, agentclient.WithFirstWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := thin.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		if d := thin.Allow(t.Context(), client.Tenant("acme")); !d.Allowed {
			t.Errorf("%s: a thin client's request is denied: %+v", when, d)
		}
		if !ready() {
			t.Errorf("%s: /readyz does not say so", when)
		}
	}
	asks("before")
	for addr, bounds := range map[string]listen.Bounds{httpAddr: httpBounds, grpcAddr: grpcBounds} {
		var oldest net.Conn
		for range bounds.StrangersOfPeer + 20 {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if oldest == nil {
				oldest = conn
			}
		}
		_ = oldest.SetReadDeadline(time.Now().Add(4 * time.Second))
		if _, err := io.Copy(io.Discard, oldest); err != nil {
			t.Errorf("%s: the oldest idle connection is still open: %v", addr, err)
		}
	}
	asks("with idle connections")

	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health := healthv1.NewHealthClient(conn)
	large := metadata.AppendToOutgoingContext(t.Context(), "x-large", strings.Repeat("x", 8<<20))
	if _, err := health.Check(large, &healthv1.HealthCheckRequest{}); err == nil {
		t.Error("a call with 8 MB of metadata was answered")
	}
	for i := range listen.HealthOfPeer + 1 {
		w, err := health.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		if refused := i == listen.HealthOfPeer; refused != (status.Code(err) == codes.ResourceExhausted) || !refused && err != nil {
			t.Errorf("stream %d that watches health: %v, want the one beyond %d refused", i, err, listen.HealthOfPeer)
		}
	}
	asks("with streams that watch health")
}

// Who asks and does not read what it is answered holds its place for as long as an answer may take, and no longer.
func TestWhoDoesNotReadIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 10)
		ctx, end := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- serveHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(10 * time.Second) // a long scrape
				_, _ = io.WriteString(w, strings.Repeat("x", 8<<10))
			}))
		}()
		const request = "GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n"
		reader, err := l.Dial()
		if err == nil {
			_, err = io.WriteString(reader, request)
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(reader), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(answer.Body); err != nil || len(b) != 8<<10 {
			t.Errorf("a long scrape: %d bytes, %v", len(b), err)
		}
		reader.Close()
		idler, err := l.Dial()
		if err == nil {
			_, err = io.WriteString(idler, request+request)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := io.WriteString(idler, request); err == nil {
			t.Error("a minute later who reads nothing has its connection still")
		}
		idler.Close()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
