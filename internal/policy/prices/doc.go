// Package prices reads what a plan costs from the operators' document, and refuses what would not be billed as it is
// meant. Amounts are parsed from text, never through a float. Read read.go first.
package prices
