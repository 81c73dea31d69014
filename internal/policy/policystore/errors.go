package policystore

import "github.com/f4ee788f/quota/internal/core/fault"

// Errors of a Store. Callers distinguish them with errors.Is.
var (
	ErrNotFound    = fault.ErrNotFound    // no such version, tenant or key
	ErrExists      = fault.ErrExists      // there is one of that id already
	ErrConflict    = fault.ErrConflict    // the change was based on another version than the one in force
	ErrInvalid     = fault.ErrInvalid     // names what does not exist, or breaks a bound; nothing was changed
	ErrUnavailable = fault.ErrUnavailable // the engine could not answer now
)
