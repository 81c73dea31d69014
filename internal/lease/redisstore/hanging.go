package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A node that hangs keeps what it is sent waiting until a time-out, and a server has few batches under way: each would wait for it, and with it
// the buckets of all other nodes, until a replica takes its place. So once a batch ran out of time there, one batch after another
// asks whether it still hangs, and what others want of it is unavailable at once.

var errHangs = errors.New("redis: the node does not answer")

// hanging is the nodes that did not answer in time, by address: a few.
type hanging struct {
	mu    sync.Mutex
	asked map[string]bool // whether a batch asks now
}

// enter reports whether a batch may go to a node, and whether it is the one that asks.
func (h *hanging) enter(node string) (asks, may bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked, hangs := h.asked[node]
	if node == "" || !hangs || asked {
		return false, node == "" || !hangs
	}
	h.asked[node] = true
	return true, true
}

// leave tells how it went.
func (h *hanging) leave(node string, asks, hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !hangs {
		delete(h.asked, node)
		return
	}
	if h.asked == nil {
		h.asked = make(map[string]bool)
	}
	h.asked[node] = h.asked[node] && !asks // one that was sent before it was known leaves another asking
}

// late reports whether a node ran out of time, or whoever waited for it did.
func late(err error) bool {
	var timed net.Error
	return errors.As(err, &timed) && timed.Timeout() || errors.Is(err, context.Canceled)
}

// addressOf is a node's; empty where it is not known.
func addressOf(node pipeliner) string {
	if c, ok := node.(*redis.Client); ok {
		return c.Options().Addr
	}
	return ""
}
