package authn

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f4ee788f/quota/internal/core/fault"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Pages are read by so many at a time: one more waits for its turn, and is refused when none comes. What changes
// something is not held up.
func TestPagesAreReadByAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReads()
		as := func(key string) context.Context {
			return WithPrincipal(t.Context(), Principal{Name: key})
		}
		begin := func(method string) (func(), error) { return r.begin(as("third"), method) }
		var ends []func()
		for i := range maxReads {
			end, err := r.begin(as([]string{"first", "second"}[i/maxReadsOfKey]), quotav1.LedgerService_ListQuarantine_FullMethodName)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
			if i == maxReadsOfKey-1 {
				if _, err := r.begin(as("first"), quotav1.UsageService_ListBreakdown_FullMethodName); !errors.Is(err, fault.ErrBusy) {
					t.Errorf("one more page of a key: %v, want ErrBusy", err)
				}
			}
		}
		if _, err := begin(quotav1.UsageService_ListBreakdown_FullMethodName); !errors.Is(err, fault.ErrBusy) {
			t.Errorf("one more page: %v, want ErrBusy", err)
		}
		for _, method := range []string{ // documents of a megabyte, and a tenant's overrides
			quotav1.AdminService_GetPolicy_FullMethodName, quotav1.AdminService_GetShadow_FullMethodName, quotav1.AdminService_GetTenant_FullMethodName,
			quotav1.StatementService_GetStatement_FullMethodName, quotav1.AdminService_ListKeys_FullMethodName,
		} {
			if _, err := begin(method); !errors.Is(err, fault.ErrBusy) {
				t.Errorf("%s: %v, want ErrBusy", method, err)
			}
		}
		for _, method := range []string{
			quotav1.AdminService_SetSwitches_FullMethodName, quotav1.AdminService_GetSwitches_FullMethodName,
			quotav1.LeaseService_Renew_FullMethodName, quotav1.LeaseService_Settle_FullMethodName, quotav1.AdminService_RevokeKey_FullMethodName,
			quotav1.AdminService_GetVersion_FullMethodName, quotav1.AdminService_SetTenantPlan_FullMethodName,
		} {
			if _, err := begin(method); err != nil {
				t.Errorf("%s: %v, want it to go on", method, err)
			}
		}
		time.AfterFunc(readWait/2, ends[0])
		if _, err := begin(quotav1.UsageService_GetUsage_FullMethodName); err != nil {
			t.Errorf("one whose turn came: %v", err)
		}
		r.answers.unread.Store(maxUnread + 1)
		ends[1]()
		if _, err := begin(quotav1.UsageService_GetUsage_FullMethodName); !errors.Is(err, fault.ErrBusy) {
			t.Errorf("while too much is unread: %v, want ErrBusy", err)
		}
	})
}

// bulky answers with a megabyte.
type bulky struct {
	quotav1.UnimplementedUsageServiceServer
}

func (bulky) GetUsage(context.Context, *quotav1.GetUsageRequest) (*quotav1.GetUsageResponse, error) {
	return &quotav1.GetUsageResponse{NextPageToken: string(make([]byte, 1<<20))}, nil
}

// A large answer is counted until its caller has read it, or is gone.
func TestUnreadAnswersAreCounted(t *testing.T) {
	a := new(answers)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(a))
	quotav1.RegisterUsageServiceServer(s, bulky{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	ask := func() (*grpc.ClientConn, grpc.ClientStream) {
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(1<<16), grpc.WithStaticConnWindowSize(1<<16))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, quotav1.UsageService_GetUsage_FullMethodName)
		if err == nil {
			err = stream.SendMsg(&quotav1.GetUsageRequest{})
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn, stream
	}
	until := func(what string, unread func(int64) bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !unread(a.unread.Load()); runtime.Gosched() {
			runtime.GC() // what gRPC forgets, the collector tells
			if time.Now().After(end) {
				t.Fatalf("%s: %d bytes are unread", what, a.unread.Load())
			}
		}
	}
	none, one := func(n int64) bool { return n == 0 }, func(n int64) bool { return n > 1<<20 }
	conn, stream := ask()
	until("one answer", one)
	if err := stream.RecvMsg(new(quotav1.GetUsageResponse)); err != nil {
		t.Fatal(err)
	}
	until("it was read", none)
	conn.Close()
	conn, _ = ask()
	until("another", one)
	conn.Close()
	until("its caller is gone", none)
}

// A REST call has its turn until its answer is written: it is not done when the page is read.
func TestARestPageHasItsTurnUntilItIsWritten(t *testing.T) {
	g, err := NewGate(&Keyring{insecureOpen: true}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: quotav1.UsageService_GetUsage_FullMethodName}
	page := func(ctx context.Context) {
		t.Helper()
		if _, err := g.Unary(ctx, &quotav1.GetUsageRequest{}, info, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
	}
	page(t.Context())
	if g.reads.n != 0 {
		t.Errorf("%d turns are taken after a call by gRPC, want none", g.reads.n)
	}
	ctx, written := WithTurn(t.Context())
	page(ctx)
	if g.reads.n != 1 {
		t.Errorf("%d turns are taken before the answer is written, want 1", g.reads.n)
	}
	written()
	if g.reads.n != 0 {
		t.Errorf("%d turns are taken once it is, want none", g.reads.n)
	}
}
