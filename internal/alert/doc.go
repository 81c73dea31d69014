// Package alert tells people that a calendar quota or a period's spending passed a threshold, or that a spending cap
// was reached. It also tells that a limit denies far more than it used to. It puts caps in force.
//
// One server leads. It looks at tenants whose usage has changed since the last block, or whose settings or policy have
// (evaluate.go). It keeps one Event for each alert, tenant, threshold and period. One transaction holds the event, its
// deliveries and the cap that it puts in force. A crash loses all of it or nothing; the next leader looks again and
// finds what is there. Deliveries are at least once, with one id, and outlive servers (deliver.go). Receivers know them
// by their signature (sign.go).
//
// Alerts wait for blocks as statements do: nothing is told before its usage is in a block.
package alert
