// Package bench compares decisions with one atomic addition and with golang.org/x/time/rate, in the same run. It is a
// module of its own, so that the product does not depend on its peers.
//
// BenchmarkX are for reading. TestHandleBound and TestAttributesBound alternate the candidates, take medians, and fail
// where a promise of docs/sdk.md does not hold.
package bench
