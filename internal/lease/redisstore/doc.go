// Package redisstore keeps buckets in Redis, a cluster or a single node. It reads them and executes the step of
// package lease here. It writes each bucket that is still the same. Read renew.go first, then write.lua. The
// node's clock decides.
//
// A write may have been executed although its answer was lost. It also wrote the holder's record, which makes a
// repetition harmless. Replication is asynchronous, so a failover may lose the last steps. A bucket whose key
// is gone begins anew: empty when the agent proves a live lease of it, and full otherwise.
package redisstore
