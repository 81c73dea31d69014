// Package doors lets gateways that do not link the SDK ask it: an HTTP check for
// nginx's auth_request and the forward-auth of Traefik and Caddy, Envoy's rate
// limit service, and a stream for processes that use the SDK without leases. A door turns what a gateway sends into attributes and cost, asks
// the client of the quota-agent that it runs in, and turns the decision into the
// gateway's words. It makes no decision of its own, and keeps nothing but what Envoy
// reported and the client cannot book yet (owed.go): that is lost on a crash, beside what the client loses.
//
// What a gateway sends is trusted: a door belongs on loopback, a Unix socket or a
// private network, never in front of the public.
//
// Read attributes.go for how an HTTP request becomes attributes, check.go for the
// answer; mapping.go and envoy.go are the same two steps for Envoy; decide.go serves thin
// clients, and turner_linux.go says on which thread.
package doors
