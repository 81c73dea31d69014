package grpcquota_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/f4ee788f/quota/internal/core/bubbled"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/grpcquota"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// oneSlot is a quota server whose policy has one limit of one slot, which whoever asks gets.
type oneSlot struct {
	quotav1.UnimplementedLeaseServiceServer
}

func (oneSlot) Renew(_ context.Context, req *quotav1.RenewRequest) (*quotav1.RenewResponse, error) {
	resp := &quotav1.RenewResponse{PolicyVersion: 1}
	for _, r := range req.Renewals {
		g := &quotav1.Grant{Number: r.Number, Status: quotav1.Grant_STATUS_GRANTED, PolicyVersion: 1, TtlMs: 1000, Tokens: 1 - r.InUse}
		if g.Tokens == 0 {
			g.DenyForMs = 100
		}
		resp.Grants = append(resp.Grants, g)
	}
	for _, id := range req.Tenants {
		resp.Tenants = append(resp.Tenants, wire.TenantToProto(limit.Tenant{ID: id, Exists: true, Plan: "p", Revision: 1}))
	}
	return resp, nil
}

func (oneSlot) Watch(_ *quotav1.WatchRequest, s quotav1.LeaseService_WatchServer) error {
	p := &limit.Policy{Version: 1, Slot: 5 * time.Minute, Plans: []limit.Plan{{Name: "p", Limits: []limit.Limit{
		{Name: "calls", Algorithm: limit.Concurrency, Slots: 1, EpsilonPPM: limit.DefaultEpsilonPPM},
	}}}}
	if err := s.Send(&quotav1.WatchResponse{Policy: wire.PolicyToProto(p), Switches: wire.SwitchesToProto(limit.Switches{})}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func (oneSlot) Settle(_ context.Context, req *quotav1.SettleRequest) (*quotav1.SettleResponse, error) {
	resp := &quotav1.SettleResponse{}
	for _, p := range req.Reports {
		resp.Receipts = append(resp.Receipts, &quotav1.Receipt{Status: quotav1.Receipt_STATUS_SETTLED, NextSeq: p.Seq + 1, Total: p.TotalAfter})
	}
	return resp, nil
}

func serve(t *testing.T, s *grpc.Server, d bubbled.Dialing) (dial func(context.Context, string) (net.Conn, error)) {
	lis := bufconn.Listen(1 << 20)
	go func() { _ = s.Serve(lis) }()
	t.Cleanup(s.Stop)
	return d.To(lis)
}

// A call has its slot until it ends, a stream until the stream does; another one meanwhile
// is told to come again.
func TestCallsAndStreamsGiveTheirSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialing := bubbled.NewDialing()
		quota := grpc.NewServer(grpc.WaitForHandlers(true))
		quotav1.RegisterLeaseServiceServer(quota, oneSlot{})
		c, err := client.Dial(t.Context(), "passthrough:quota", client.WithDialer(serve(t, quota, dialing)))
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan bool)
		app := grpc.NewServer(grpc.UnaryInterceptor(grpcquota.Unary(c)), grpc.StreamInterceptor(grpcquota.Stream(c)), grpc.WaitForHandlers(true))
		app.RegisterService(&grpc.ServiceDesc{
			ServiceName: "app", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
				in := new(emptypb.Empty)
				if err := dec(in); err != nil {
					return nil, err
				}
				return i(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/app/Call"}, func(context.Context, any) (any, error) {
					<-release
					return in, nil
				})
			}}},
			Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, Handler: func(any, grpc.ServerStream) error {
				<-release
				return nil
			}}},
		}, nil)
		conn, err := grpc.NewClient("passthrough:app", grpc.WithContextDialer(serve(t, app, dialing)), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "a")
		call := func() error { return conn.Invoke(ctx, "/app/Call", new(emptypb.Empty), new(emptypb.Empty)) }
		stream := func() error {
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/app/Stream")
			if err != nil {
				return err
			}
			_ = s.CloseSend()
			for {
				if err := s.RecvMsg(new(emptypb.Empty)); err != nil {
					return err
				}
			}
		}
		for name, run := range map[string]func() error{"call": call, "stream": stream} {
			first := make(chan error)
			go func() { first <- run() }()
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
			err := call()
			if s := status.Convert(err); s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
				t.Errorf("during the %s another is answered %v with %v, want RESOURCE_EXHAUSTED with a time", name, err, s.Details())
			}
			release <- true
			if err := <-first; err != nil && name == "call" {
				t.Errorf("the %s: %v", name, err)
			}
			synctest.Wait()
		}
		go func() { release <- true }()
		if err := call(); err != nil {
			t.Errorf("after the end of both: %v", err)
		}
		_ = conn.Close()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		app.Stop()
		quota.Stop()
	})
}
