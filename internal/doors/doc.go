// Package doors lets gateways ask that do not link the SDK. There is an HTTP check for nginx's auth_request and the
// forward-auth of Traefik and Caddy. There is Envoy's rate limit service, and a stream for processes that use the SDK
// without leases.
//
// A door turns what a gateway sends into attributes and cost, and asks the client of the quota-agent that it runs in.
// It turns the decision into the gateway's words, and makes none of its own. It keeps only what Envoy reported and the
// client cannot book yet (owed.go). A crash loses that, beside what the client loses.
//
// What a gateway sends is trusted: a door belongs on loopback, a Unix socket or a private network, never in front of
// the public.
//
// Read attributes.go for how an HTTP request becomes attributes, and check.go for the answer. Read mapping.go and
// envoy.go for the same two steps for Envoy. decide.go serves thin clients; turner_linux.go says on which thread.
package doors
