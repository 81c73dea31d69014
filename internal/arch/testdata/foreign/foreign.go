// Package foreign does what the SDK must not: it shows other modules' types.
package foreign

import (
	"context"

	"google.golang.org/grpc"
)

// Conn shows one as a field, which is seen in a function too, and hides another.
type Conn struct {
	Exposed *grpc.ClientConn
	hidden  grpc.DialOption
}

// Option is one under another name.
type Option = grpc.DialOption

// Use takes one in a map.
func (c *Conn) Use(_ context.Context, _ map[string][]grpc.CallOption) { _ = c.hidden }

// Open returns one through a function.
func Open() func() grpc.ClientConnInterface { return nil }
