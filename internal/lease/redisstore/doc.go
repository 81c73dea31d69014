// Package redisstore keeps buckets in Redis, a cluster or a single node. It reads them, executes the step of package lease
// here, and writes each that is still what was read; renew.go first, then write.lua. The node's clock decides.
//
// A write may have been executed although its answer was lost; the holder's record, which it
// brought, makes a repetition harmless. Replication is asynchronous: a failover may lose the last
// steps, and a bucket whose key is gone begins anew, empty when the agent proves
// a live lease of it, and full otherwise.
package redisstore
