// Package alerts serves the events of quotas and spending that were passed, and builds what evaluates them and tells
// webhooks (package alert). An event is kept with the tenants' marks in one transaction: it is told once, whichever
// server leads.
//
// Read alerts.go first.
package alerts
