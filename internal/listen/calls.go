package listen

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/peer"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/wire"
)

// PeerOf is the remote address of a call, as Known takes it; nil if it has none.
func PeerOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// Refused is the error of a call on a connection that Known refused.
func Refused() error {
	return wire.Error(fmt.Errorf("%w: as many connections are open as there may be", fault.ErrBusy))
}
