package client

import (
	"log/slog"
	"sync"
)

// unweighed logs that a limit has no weights for usage that is over, once for each limit and policy. A mistake in the
// policy would else be a line for every request. It is safe for concurrent use.
type unweighed struct {
	mu      sync.Mutex
	version int64           // of the policy
	said    map[string]bool // its limits' names, so as many as it has
}

func (u *unweighed) say(log *slog.Logger, version int64, limit string, why error) {
	u.mu.Lock()
	known := u.version == version && u.said[limit]
	if u.version != version || u.said == nil {
		u.version, u.said = version, make(map[string]bool)
	}
	u.said[limit] = true
	u.mu.Unlock()
	if !known {
		log.Warn("usage that is over is not counted at a limit, only at others", "limit", limit, "error", why)
	}
}
