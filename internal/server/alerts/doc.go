// Package alerts serves the events of passed quotas and spending. It builds the runner that evaluates them and calls
// webhooks (package alert). An event is kept with the tenants' marks in one transaction, so it is told once, whichever
// server leads.
//
// Read alerts.go first.
package alerts
