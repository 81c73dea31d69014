// Package quotactl is the operators' command line, over a server's admin API. It applies policies, changes tenants,
// makes keys, turns switches and reads usage. It keeps nothing. docs/quotactl.md is its manual.
//
// Read root.go first: how a command reaches the server and how errors end it. connect.go, completion.go, when.go and
// words.go are shared, the other files hold commands, and package render prints what they say.
package quotactl
