// Package statements works out what tenants owe. It joins what the ledger has sealed with what the policy store knows,
// and billing does the rest. It closes statements when told or by itself (closer.go), and prices past periods by the
// shadow policy (simulate.go). It also says what tenants spend, for alerts (spending.go), and gives credits.
//
// A statement is a pure function of the entries up to one block. It is closed once. It is closed before its usage is
// complete only with a reason. Plan changes whose time has come are made before it is read.
//
// Read statement.go first, then course.go (which periods a tenant has) and draft.go (what one comes to).
package statements
