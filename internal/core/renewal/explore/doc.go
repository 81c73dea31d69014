// Package explore tries everything. A few agents with the product's renewal loop (internal/core/renewal) share one bucket
// of the product's step (lease.State). The tests play every sequence of a few events: requests, calls that go astray or
// come twice, hung servers, a store that forgets, time. An oracle written from docs/error-bound.md, and not from the
// code, judges what was admitted. Then all is mended, and nobody may be denied for ever. A shortest sequence that breaks
// this is printed.
//
// Read explore_test.go first, then cases_test.go for what is explored, and what is known not to hold. world_test.go has
// the agents, the server and the network, events_test.go what may happen, oracle_test.go what may come of it.
// digest_test.go tells states apart.
//
// guards_test.go removes guards of the product, one at a time, and lists what each shows. To see the sequences:
//
//	go test -v -run TestGuards ./renewal/explore
package explore
