// Package quotactl is the operators' command line: it applies policies, changes
// tenants, makes keys, turns switches and reads usage, through the admin API of a
// server. It keeps nothing. docs/quotactl.md is its manual.
//
// Read root.go first: how a command reaches the server and how errors end it. The
// other files hold a command each.
package quotactl
