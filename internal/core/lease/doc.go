// Package lease is the heart: it shares a bucket out to the agents that spend it. An agent's lease is a token
// bucket of its own: tokens now, and a trickle with a cap on its pile. It lasts until it expires. The sum of
// leases never exceeds the bucket by more than epsilon; docs/error-bound.md states and proves the bound.
//
// Read step.go first, with state.go for its words. It is the renewal step, the one piece of arithmetic that decides.
// level.go says what the bucket has, share.go what a holder gets, and term.go for how long. plenty.go says both where
// all ask for far less than the limit. fallback.go says what a holder goes on with out of contact, forget.go what
// happens once a store forgot. window.go, sliding.go, log.go and slots.go begin with what their algorithms keep.
//
// Store is the seam behind which the step runs atomically: memstore in process, and internal/lease/redisstore
// on Redis Cluster, by compare-and-set. leasetest holds both to one suite. Each store's documentation says what
// it loses on a crash.
package lease
