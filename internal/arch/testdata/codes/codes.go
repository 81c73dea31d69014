// Package codes does what belongs to internal/core/wire: it makes gRPC errors.
package codes

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Missing is wrong here: it is the product's own error.
func Missing() error { return status.Errorf(codes.NotFound, "no tenant %q", "acme") }

// Unserved is right: gRPC says so itself.
func Unserved() error { return status.Error(codes.Unimplemented, "no such method") }
