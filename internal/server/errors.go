package server

import (
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/fault"
)

var errNoPolicy = errors.New("no policy was applied yet: quotactl apply -f FILE")

// unknownPolicy says why nothing can be answered before a policy is known.
func (v *view) unknownPolicy() error {
	reason := errNoPolicy
	v.mu.Lock()
	if v.err != nil {
		reason = fmt.Errorf("the policy could not be read yet: %w", v.err)
	}
	v.mu.Unlock()
	return fmt.Errorf("%w: %w", fault.ErrUnavailable, reason)
}
