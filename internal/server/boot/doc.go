// Package boot makes a quota server out of its configuration: it reads flags, environment and file, opens the engines,
// migrates, applies the policy file, and runs. Programs, tests and the demo start servers through it.
//
// Engines that are away do not keep a server from starting: it serves health and says in its readiness what it waits
// for. What is wrong with the configuration itself, does.
//
// Read config.go for what can be configured, then boot.go for the order in which things are opened, and closed in
// reverse.
package boot
