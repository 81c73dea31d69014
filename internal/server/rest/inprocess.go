package rest

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/core/wire"
)

// InProcess is a client connection that calls services in this process, through
// the same gate as calls from outside: REST is translated into it. It serves
// unary calls only, which is all that REST has.
type InProcess struct {
	gate    grpc.UnaryServerInterceptor
	methods map[string]localMethod
}

type localMethod struct {
	service any
	handler grpc.MethodHandler
}

// NewInProcess returns a connection without services, whose calls pass gate.
func NewInProcess(gate grpc.UnaryServerInterceptor) *InProcess {
	return &InProcess{gate: gate, methods: make(map[string]localMethod)}
}

// RegisterService adds a service; generated code calls it.
func (c *InProcess) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		c.methods["/"+desc.ServiceName+"/"+m.MethodName] = localMethod{service, m.Handler}
	}
}

// Invoke calls a method. Its metadata is what gRPC would have sent.
func (c *InProcess) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	m, ok := c.methods[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "no such method: %s", method)
	}
	if err := checkQuery(ctx, args.(proto.Message).ProtoReflect().Descriptor()); err != nil {
		return wire.Error(err)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewIncomingContext(ctx, md)
	decode := func(into any) error {
		proto.Merge(into.(proto.Message), args.(proto.Message))
		return nil
	}
	resp, err := m.handler(m.service, ctx, decode, c.gate)
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), resp.(proto.Message))
	return nil
}

// NewStream fails: nothing that REST serves streams.
func (c *InProcess) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("in process: %w", status.Error(codes.Unimplemented, "streams are served by gRPC only"))
}
