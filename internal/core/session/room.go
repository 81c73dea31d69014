package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/agent"
)

const (
	// roomEvery is the least time between two looks for room.
	roomEvery = time.Second
	// crowdedIdle is how long a bucket may be unused while few are free.
	crowdedIdle = 5 * time.Second
	// maxEvicted bounds the leases that are given up a second: a few calls of the server's.
	maxEvicted = 8192
)

// scarce reports whether next to no bucket is free.
func (l *Loop) scarce() bool { return l.s.Registry.Buckets() > int64(l.s.cfg.MaxBuckets)*15/16 }

// makeRoom drops idle buckets. Holders that have their share or more give up the buckets that were unused for longest.
// Those with their share give up idle ones, those with more all beyond it. A lease goes back with its last renewal,
// and the bucket is dropped with the answer. While the server is away, or rows wait for room, nothing leased is given
// up.
func (l *Loop) makeRoom() {
	l.sweep(l.collect())
	l.s.Registry.SweepInvented()
	if l.s.Lost.Load() || l.outbox.Usage.Behind || len(l.limbo) > maxEvicted {
		return
	}
	held := make(map[agent.Holder]int)
	l.s.Registry.Each(func(e *agent.Entry) { held[e.Holder()]++ })
	level := l.s.Registry.Level(slices.Collect(maps.Values(held)))
	type spare struct {
		entry  *agent.Entry
		holder agent.Holder
		since  int64
	}
	var spares []spare
	l.s.Registry.Each(func(e *agent.Entry) {
		if h := e.Holder(); held[h] >= level-level/16 {
			if since, ok := e.Spare(); ok {
				spares = append(spares, spare{e, h, since})
			}
		}
	})
	slices.SortFunc(spares, func(a, b spare) int { return cmp.Compare(a.since, b.since) })
	now, evicted := l.s.Now(), 0
	for _, s := range spares {
		if evicted == maxEvicted {
			break
		}
		if held[s.holder] <= level && s.since >= now-crowdedIdle.Microseconds() {
			continue
		}
		held[s.holder]--
		evicted++
		if l.Drop(s.entry) {
			continue
		}
		s.entry.GiveUp()
		l.renewals.RenewWithin(now, 0, s.entry)
	}
	l.count.evicted += int64(evicted)
}
