// Package bench holds decisions against one atomic addition and against
// golang.org/x/time/rate, in the same run. It is a module of its own, so that the
// product does not depend on what it is compared with.
//
// BenchmarkX are for reading; TestHandleBound and TestAttributesBound alternate the candidates, take medians
// and fail where a promise of docs/sdk.md does not hold.
package bench
