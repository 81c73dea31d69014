package headers

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Row is how every door answers a request that was denied for one reason.
type Row struct {
	Status int        // HTTP's
	Code   codes.Code // gRPC's
	Envoy  Envoy
	Waits  bool   // coming again later helps: the answer says when
	Detail string // a sentence for the caller; empty where the limit's name says it
}

// Envoy is what its rate limit service can say. A denial is never an error where the request is at fault: Envoy lets
// requests pass at errors, unless it is told otherwise.
type Envoy uint8

const (
	EnvoyOver  Envoy = iota // OVER_LIMIT
	EnvoyOK                 // OK: what no limit holds is free
	EnvoyError              // UNAVAILABLE: its own failure mode decides
)

// UnknownTenant is the reason whose status is a choice: 403, or 401 where the tenant identifies the caller.
const UnknownTenant = "no-plan"

// rows is the one table of docs/doors.md, by reason. 429 is only for requests over quota.
var rows = map[string]Row{
	"limit":      {http.StatusTooManyRequests, codes.ResourceExhausted, EnvoyOver, true, ""},
	"priority":   {http.StatusTooManyRequests, codes.ResourceExhausted, EnvoyOver, true, "what is left is reserved for requests of a higher priority"},
	"queue-full": {http.StatusTooManyRequests, codes.ResourceExhausted, EnvoyOver, true, "as many requests wait their turn as may"},
	// Not 429: clients repeat that, and this one never fits.
	"too-large": {http.StatusRequestEntityTooLarge, codes.InvalidArgument, EnvoyOver, false, "the request costs more than the limit ever lets through at once"},
	"listed":    {http.StatusForbidden, codes.PermissionDenied, EnvoyOver, false, "the limit's deny list has the request"},
	"no-tenant": {http.StatusBadRequest, codes.InvalidArgument, EnvoyOK, false, "the request names no tenant"},
	"invalid":   {http.StatusBadRequest, codes.InvalidArgument, EnvoyOver, false, "a cost of the request is out of range or not known, or its tenant's id is malformed"},

	UnknownTenant: {http.StatusForbidden, codes.PermissionDenied, EnvoyOver, false, "the tenant is not known, or has no plan"},
	"suspended":   {http.StatusForbidden, codes.PermissionDenied, EnvoyOver, false, "the tenant is suspended"},
	"switch":      {http.StatusForbidden, codes.PermissionDenied, EnvoyOver, false, "an operator has switched the tenant off"},
	// The tenant may pay for more, by raising its cap: neither waiting nor another key helps before the period ends.
	"spending-cap": {http.StatusPaymentRequired, codes.FailedPrecondition, EnvoyOver, false, "the tenant has reached its spending cap"},

	"queue-timeout": {http.StatusGatewayTimeout, codes.DeadlineExceeded, EnvoyOver, true, "the request's turn did not come in time"},
	// A limit's on_outage is an answer, so Envoy does not get to decide otherwise.
	"outage":     {http.StatusServiceUnavailable, codes.Unavailable, EnvoyOver, true, "the quota server is out of contact"},
	"unknown":    {http.StatusServiceUnavailable, codes.Unavailable, EnvoyError, true, "no policy is known yet"},
	"deadline":   {http.StatusServiceUnavailable, codes.Unavailable, EnvoyError, true, "no answer came in time"},
	"overloaded": {http.StatusServiceUnavailable, codes.Unavailable, EnvoyError, true, "too much is under way"},
	"closed":     {http.StatusServiceUnavailable, codes.Unavailable, EnvoyError, true, "the gateway is ending"},
}

// RowOf is the row of a reason for denials. An unknown reason is answered as the service's fault.
func RowOf(reason string) Row {
	if r, ok := rows[reason]; ok {
		return r
	}
	return Row{Status: http.StatusServiceUnavailable, Code: codes.Unavailable, Envoy: EnvoyError, Waits: true}
}
