// Package integration proves the whole product at once, in production mode. Servers and gateways are processes of their
// own, on a real Redis Cluster and Postgres, with faults in the middle. It holds nothing but tests; read
// production_test.go.
package integration
