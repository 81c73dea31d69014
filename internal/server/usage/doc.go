// Package usage answers what was used: sums, breakdowns by page, and files of them.
//
// Every answer says until when it is complete. All pages of a listing are of its first page's block, and a file of a
// height has the same bytes for ever. The number of files made at once is bounded, and a reader that stalls is given
// up.
//
// Read usage.go first, then breakdown.go.
package usage
