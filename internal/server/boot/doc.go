// Package boot makes a quota server out of its configuration. It reads flags, environment and file, opens the engines,
// migrates, applies the policy file, and runs. Programs, tests and the demo start servers through it.
//
// Engines that are away do not keep a server from starting: it serves health, and its readiness says what it waits for.
// A fault in the configuration itself does.
//
// Read config.go for what can be configured. Then read boot.go for the order in which things are opened; they are
// closed in reverse.
package boot
