// Package redisstore keeps buckets in Redis, a cluster or a single node: one Lua
// step per bucket (step.lua first), pipelined by node. The node's clock decides.
//
// A step may have been executed although its answer was lost; nothing here sends
// it again (go-redis would), and the holder's record makes a repetition by the
// agent harmless. Replication is asynchronous: a failover may lose the last
// steps, and a bucket whose key is gone begins anew, empty when the agent proves
// a live lease of it, and full otherwise.
package redisstore
