package redisstore

import (
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// clockLife is how long after it was asked for a node's time is known without asking again. Until then this server's monotonic clock counts on from
// when the answer was there: so what is taken for the time is not ahead of the node's by more than the two drift apart meanwhile, and behind by what
// the answer took, unless somebody sets the node's clock. That is seen so much later.
const clockLife = 250 * time.Millisecond

// clocks are what nodes said the time is. They are safe for concurrent use.
type clocks struct {
	mu   sync.Mutex
	told map[*redis.Client]told
}

type told struct {
	now             int64 // Unix microseconds
	asked, answered time.Time
}

func newClocks() *clocks { return &clocks{told: make(map[*redis.Client]told)} }

func (c *clocks) learn(node *redis.Client, t told) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.told, func(_ *redis.Client, t told) bool { return time.Since(t.asked) > clockLife }) // nodes come and go
	c.told[node] = t
}

// now returns a node's time in Unix microseconds, 0 where it has to be asked.
func (c *clocks) now(node *redis.Client) int64 {
	c.mu.Lock()
	t, known := c.told[node]
	c.mu.Unlock()
	if !known || time.Since(t.asked) > clockLife {
		return 0
	}
	return t.now + time.Since(t.answered).Microseconds()
}
