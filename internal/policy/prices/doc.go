// Package prices reads the price of a plan from the operators' document. It refuses prices that would not be billed as
// they are meant. Amounts are parsed from text, never through a float. Read read.go first.
package prices
