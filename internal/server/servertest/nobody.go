package servertest

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// Nobody is who may call where that does not matter.
type Nobody struct{}

// Load does nothing.
func (Nobody) Load([]policystore.Key, bool) {}

// Moved does nothing.
func (Nobody) Moved(map[string]string, bool) {}

// FlushUsed has nothing to write.
func (Nobody) FlushUsed(context.Context, func(context.Context, map[string]time.Time) error) error {
	return nil
}

// Sweep does nothing.
func (Nobody) Sweep() {}
