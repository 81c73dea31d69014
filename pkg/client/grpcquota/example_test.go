package grpcquota_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/grpcquota"
)

// twoUnits stands for a client.Client, of a plan with two units an hour.
type twoUnits struct{ left int64 }

func (q *twoUnits) AllowN(_ context.Context, n int64, _ ...client.Attribute) client.Decision {
	q.left -= n
	return client.Decided(q.left >= 0, client.ReasonLimit, time.Hour, client.Details{Limit: "requests"})
}

// An interceptor answers what a limit denies, before the handler sees it.
func ExampleUnary() {
	quota := &twoUnits{2} // client.Dial(ctx, "quota.internal:7600")
	intercept := grpcquota.Unary(quota)
	server := grpc.NewServer(grpc.UnaryInterceptor(intercept), grpc.StreamInterceptor(grpcquota.Stream(quota)))
	defer server.Stop()

	// What the server does with each call:
	handler := func(context.Context, any) (any, error) { return "hello", nil }
	for range 3 {
		answer, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/app.Greeter/Hello"}, handler)
		fmt.Println(answer, status.Code(err))
	}
	// Output:
	// hello OK
	// hello OK
	// <nil> ResourceExhausted
}
