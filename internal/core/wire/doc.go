// Package wire turns the protocol's messages into the core's types and back. It checks the bounds that the
// protocol states, and maps errors to gRPC codes and back. Sender and receiver use the same functions, so that
// a bound is enforced on both sides and an error keeps its name on the way.
//
// Times are microseconds in the core and milliseconds in messages. The time that a lease may still be used is
// rounded down, a time to wait is rounded up. Windows are whole milliseconds, which the policy sees to.
//
// Read errors.go for the errors, bounds.go for the bounds, limits.go and lease.go for the conversions. Nothing
// here blocks or keeps state.
package wire
