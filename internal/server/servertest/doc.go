// Package servertest has what tests of the server's rooms share: stores on each engine at a time of their own, a policy
// store that can be spoilt or put in place of another, and the reading of metrics.
package servertest
