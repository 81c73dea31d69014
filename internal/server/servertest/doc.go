// Package servertest has what tests of the server's rooms share. It opens stores on each engine at a time of the test's
// choice, spoils or replaces a policy store, and reads metrics.
package servertest
