// Package judge says which rows of a report may become entries. A row's tenant, meter and plan must exist in the policy
// version under which it was admitted. Other rows go to quarantine, from where they can be released.
//
// It promises that nothing unknown is accepted, and that no usage is refused because it is not known yet. A report that
// names something unknown is unchecked, and Learn looks it up. Look-ups are bounded for an agent, and for all agents of
// a key. It also knows how much each limit of a version may admit by its definition (bound.go); package granted asks
// for that.
//
// It imports no other room. Read judge.go first, then learn.go; inquiry.go has the bounds.
package judge
