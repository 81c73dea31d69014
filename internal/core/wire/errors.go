package wire

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// domain marks the reasons of this protocol among other services' details.
const domain = "quota.v1"

// named are the errors that cross the wire. The first that an error wraps decides;
// the reason tells apart those that share a code.
var named = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{fault.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{fault.ErrDenied, codes.PermissionDenied, "DENIED"},
	{fault.ErrNotFound, codes.NotFound, "NOT_FOUND"},
	{fault.ErrExists, codes.AlreadyExists, "EXISTS"},
	{fault.ErrConflict, codes.Aborted, "CONFLICT"},
	{fault.ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
	{fault.ErrBusy, codes.ResourceExhausted, "BUSY"},
	{lease.ErrUnavailable, codes.Unavailable, "LEASE_UNAVAILABLE"},
	{lease.ErrStale, codes.FailedPrecondition, "LEASE_STALE"},
	{lease.ErrInvalid, codes.InvalidArgument, "LEASE_INVALID"},
	{lease.ErrUnknown, codes.NotFound, "BUCKET_UNKNOWN"},
	{ledger.ErrReport, codes.InvalidArgument, "REPORT"},
	{limit.ErrNoPlan, codes.FailedPrecondition, "NO_PLAN"},
	{limit.ErrSuspended, codes.FailedPrecondition, "SUSPENDED"},
	{limit.ErrCapped, codes.FailedPrecondition, "CAPPED"},
	{limit.ErrChain, codes.InvalidArgument, "CHAIN"},
	{limit.ErrRate, codes.InvalidArgument, "RATE"},
	{limit.ErrMatch, codes.InvalidArgument, "MATCH"},
	{fault.ErrInvalid, codes.InvalidArgument, "INVALID"},
}

// plain names a status that came without a reason, by its code.
var plain = map[codes.Code]error{
	codes.Canceled:         context.Canceled,
	codes.DeadlineExceeded: context.DeadlineExceeded,
	codes.Unauthenticated:  fault.ErrUnauthenticated,
	codes.PermissionDenied: fault.ErrDenied,
	codes.NotFound:         fault.ErrNotFound,
	codes.AlreadyExists:    fault.ErrExists,
	codes.Aborted:          fault.ErrConflict,
	codes.Unavailable:      fault.ErrUnavailable,
	codes.InvalidArgument:  fault.ErrInvalid,
}

// reasonFaults marks a status that carries a document's faults as details.
const reasonFaults = "FAULTS"

// Error returns err as a gRPC status: nil for nil, itself where it is a status
// already, Internal for what has no name. A document's faults become
// INVALID_ARGUMENT with a quotav1.Fault as detail for each.
func Error(err error) error {
	if err == nil {
		return nil
	}
	var faults fault.Faults
	if errors.As(err, &faults) {
		details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: domain, Reason: reasonFaults}}
		for _, f := range faults {
			details = append(details, &quotav1.Fault{File: f.File, Line: int32(min(f.Line, 1<<31-1)), Message: f.Message})
		}
		message := fmt.Sprintf("the document has %d faults", len(faults))
		if len(faults) == 1 {
			message = "the document has a fault: " + faults[0].String()
		}
		return with(status.New(codes.InvalidArgument, message), details...)
	}
	for _, n := range named {
		if errors.Is(err, n.err) {
			s := status.New(n.code, err.Error())
			if n.reason == "" {
				return s.Err()
			}
			return with(s, &errdetails.ErrorInfo{Domain: domain, Reason: n.reason})
		}
	}
	// Only after the names: an error may wrap the status of a call of our own.
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

func with(s *status.Status, details ...protoadapt.MessageV1) error {
	if d, err := s.WithDetails(details...); err == nil {
		return d.Err()
	}
	return s.Err()
}

// FromError returns the named error that a call failed with, so that errors.Is works on both sides. If the
// status carries faults, that is fault.Faults. Otherwise it is an error that wraps the name and the status, so
// that status.Code works as well. A status without a reason, of a proxy or of gRPC itself, is named by its
// code.
func FromError(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	reason := ""
	var faults fault.Faults
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == domain {
				reason = d.GetReason()
			}
		case *quotav1.Fault:
			faults = append(faults, fault.Fault{File: d.GetFile(), Line: int(d.GetLine()), Message: d.GetMessage()})
		}
	}
	if reason == reasonFaults && len(faults) > 0 {
		return faults
	}
	for _, n := range named {
		if n.reason != "" && n.reason == reason {
			return &remote{name: n.err, status: err, message: s.Message()}
		}
	}
	if name, ok := plain[s.Code()]; ok {
		return &remote{name: name, status: err, message: s.Message()}
	}
	return err
}

// remote is an error that happened on the other side.
type remote struct {
	name, status error
	message      string
}

func (r *remote) Error() string { return r.message }

func (r *remote) Unwrap() []error { return []error{r.name, r.status} }

// GRPCStatus lets status.Code and status.FromError see the status.
func (r *remote) GRPCStatus() *status.Status { return status.Convert(r.status) }
