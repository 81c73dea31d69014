// Package gateway is a reverse proxy for an OpenAI-compatible upstream, with quotas in tokens and money. What a request
// costs is known only once its answer has streamed. So the gateway reserves what is likely, extends the reservation
// while the answer streams, and commits what it came to. A stream whose budget ends is ended cleanly.
//
// Read gateway.go first (a request), then meter.go (its reservation), then stream.go (its answer).
package gateway
