// Package admin is what operators call about policy, tenants, plans, switches and keys.
//
// Bounds and roles are checked before a call reaches it, and every change is audited by the store in its own
// transaction. A caller finds its change in force on this server, because the view looks at once.
//
// Read admin.go first.
package admin
