// Package alert tells people what tenants come to: that a calendar quota or a period's
// spending passed a threshold, that a limit denies far more than it used to, that a
// spending cap was reached; and it puts caps in force.
//
// One server leads. It looks at tenants whose usage has changed since the last block,
// whose own settings have, or whose policy has (evaluate.go), and keeps an Event once for
// each alert, tenant, threshold and period, in one transaction with its deliveries and
// with the cap that it puts in force: a crash loses all of it or nothing, and whoever
// leads next looks again and finds what is there. Deliveries are at least once, with one
// id, and outlive servers (deliver.go); sign.go is how a receiver knows them.
//
// What is true of usage is true of its alerts: nothing is told before it is in a block.
package alert
