// Package usage answers what was used: sums, breakdowns by page, and files of them.
//
// Every answer says through when it is complete. Pages stay those of the first one's block, and a file of a height has
// the same bytes for ever. How many files are made at once is bounded, and a reader that stalls is left.
//
// Read usage.go first, then breakdown.go.
package usage
