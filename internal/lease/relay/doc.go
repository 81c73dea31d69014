// Package relay holds one lease of a bucket for all agents that come to a server, and makes their leases out of it:
// levels compose. A hundred agents of a bucket are then one holder to the lease store, and an agent's renewal is
// answered from memory.
//
// bucket.go is the whole of the arithmetic, with time as an argument: a lease.State like any store's, stepped by
// the same lease.State.Renew, whose rate and capacity are those of the lease that the relay holds. store.go has the locks and
// the calls. docs/error-bound.md says why the bound stays the bound:
//
//   - what can be spent here, level, stocks, piles and unused trickle of all leases made here, is at any time no more than the
//     stock and the pile of the relay's own lease, and their trickles sum to no more than its trickle;
//   - a lease made here ends before the relay's own does;
//   - the store takes back nothing that these leases have (lease.Renewal.Kept), nor counts as unspent what
//     they may have spent and not reported.
//
// What agents spent out of contact with leases made here is reported to the store once, when they come back here within
// lease.RecordLife; direct.go is for those that come to where nothing is held.
//
// What is lost when a server ends, in order or not: the leases made here run to their ends, and what they had is nobody's until
// then, as with an agent that crashed. An agent that comes to another server is a newcomer there, and what it spent beyond
// its lease meanwhile is taken out nowhere.
package relay
