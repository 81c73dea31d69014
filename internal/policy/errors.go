package policy

import "errors"

var (
	// ErrNotFound means that there is no such version, tenant or key.
	ErrNotFound = errors.New("policy: not found")
	// ErrExists means that there is one of that id already.
	ErrExists = errors.New("policy: already exists")
	// ErrConflict means that another version came into force than the one a change was based on.
	ErrConflict = errors.New("policy: another version is in force")
	// ErrInvalid means that a change names what does not exist, or breaks a bound; nothing was changed.
	ErrInvalid = errors.New("policy: invalid")
)
