package leasing

import (
	"sync"
	"time"
)

const (
	// heardFor is how long an agent counts after its last renewal here, or the end of its stream.
	heardFor = 30 * time.Second
	// mostHeard bounds the agents that are counted, some hundred bytes each: no limit has room for the credit of more.
	mostHeard = 100_000
)

// fleet counts the agents that call this server, so that they can share what a limit has room for (limit.TouchCredit).
type fleet struct {
	mu    sync.Mutex
	heard map[string]time.Time // when, by agent
	swept time.Time
}

// hear notes that an agent called, and returns how many there are.
func (f *fleet) hear(agent string, now time.Time) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.swept) >= heardFor/8 {
		for a, at := range f.heard {
			if now.Sub(at) >= heardFor {
				delete(f.heard, a)
			}
		}
		f.swept = now
	}
	if _, ok := f.heard[agent]; ok || len(f.heard) < mostHeard {
		if f.heard == nil {
			f.heard = make(map[string]time.Time)
		}
		f.heard[agent] = now
	}
	return int32(len(f.heard))
}
