// Package engines starts the real engines of production mode on this machine, as processes of the caller. It starts a
// Redis Cluster and a Postgres, on loopback, each in a directory of its own. Tests use it through internal/testenv; the
// load test uses it directly. Nothing here is meant to hold data that anybody wants to keep.
//
// Engines end with the process that started them, however that ends. A keeper, a small shell, holds the other end of a
// pipe and cleans up at its end. No goroutine is left running, so leak checks need no exceptions.
//
// Read redis.go and postgres.go for what can be done to an engine. Read process.go and keeper.go for how one lives and
// dies, and ports.go for how ports are found.
package engines
