// Package likely learns what requests turn out to cost, so that what is likely can be reserved and not the most.
//
// A sketch is a log-linear histogram, as HdrHistogram (Gil Tene) has them: each power of two has equal parts. So its
// memory is fixed, and its relative error bounded. Counts fade, so that it follows a change. A Table has a sketch for
// each tenant, cost and attribute value. It is memory only: a restart learns anew.
//
// Read sketch.go first.
package likely
