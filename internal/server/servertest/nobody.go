package servertest

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// Nobody is who may call where that does not matter.
type Nobody struct{}

// Load, Moved, FlushUsed and Sweep do nothing.
func (Nobody) Load([]policystore.Key, bool)  {}
func (Nobody) Moved(map[string]string, bool) {}
func (Nobody) FlushUsed(context.Context, func(context.Context, map[string]time.Time) error) error {
	return nil
}
func (Nobody) Sweep() {}
