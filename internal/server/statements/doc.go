// Package statements works out what tenants owe: it brings together what the ledger has sealed and what the policy
// store knows, and billing does the rest. It closes statements too, when told or by itself (closer.go), prices past
// periods by a policy that is tried (simulate.go), says what tenants spend, for alerts (spending.go), and gives
// credits.
//
// A statement is of one block, and a pure function of the entries up to it: it is never closed twice, nor before its
// usage is complete, unless with a reason. Plan changes whose time has come are made before it is read.
//
// Read statement.go first, then course.go (which periods a tenant has) and draft.go (what one comes to).
package statements
