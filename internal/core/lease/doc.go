// Package lease holds the heart: how a bucket is shared out to the agents that
// spend it. An agent's lease of a bucket is a token bucket of its own — tokens
// now, a trickle with a cap on what may pile up — until it expires. The sum of
// what is out never exceeds the bucket by more than epsilon; docs/error-bound.md
// states and proves the bound.
//
// Read step.go first, with state.go for its words: it is the renewal step, the one piece of arithmetic that
// decides. share.go says what a holder gets; sliding.go, log.go and slots.go begin with what their algorithms
// keep. Store is the seam behind which it runs atomically: memstore in process, internal/lease/redisstore on
// Redis Cluster, by compare-and-set. leasetest holds both to one suite. What a store loses on a crash is stated
// there.
package lease
