// Package judge says which rows of a report may become entries: those whose tenant, meter and plan the policy had in
// the version that they were admitted under. The others go to quarantine, from where they can be released.
//
// It promises that nothing unknown is accepted and no usage refused because it is not known yet: what it does not know
// it says so of, and Learn looks it up. What is looked up is bounded for an agent, and for all agents of a key. It
// knows too what each limit of a version may admit by its definition (bound.go), for who holds usage against leases.
//
// It imports no other room. Read judge.go first, then learn.go; inquiry.go has the bounds.
package judge
