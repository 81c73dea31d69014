// Package limit says what a limit is: rates and windows, attributes and how they match, plans, tenants, and the
// policy that holds them all. It is pure: standard library only, no clock (time is an argument) and no lock.
// Its only I/O reads a time zone when a limit is compiled.
//
// Everything that decides, leases, bills or administers shares these types. Read limit.go first, then rate.go
// and window.go for the arithmetic, match.go, rule.go and matcher.go for which limits a request meets.
package limit
