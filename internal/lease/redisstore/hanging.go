package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A node that hangs keeps its commands waiting until a time-out, and a server has few batches under way. All of
// them would come to wait for that node, and with them the buckets of all others, until a replica takes its
// place. So once a batch timed out there, one batch at a time asks whether the node still hangs. Other renewals
// of its buckets are unavailable at once.

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
	h.asked[node] = h.asked[node] && !asks // a batch sent before that was known lets another go on asking
}

// late reports whether a node timed out, or its caller gave up.
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
