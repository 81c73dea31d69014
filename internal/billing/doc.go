// Package billing turns usage into money: prices, periods, and statements of what a tenant owes. It is pure: no clock,
// no lock, no store. Time zones are its only input that is not an argument. A statement is a function of its Input
// alone and encodes to the same bytes for ever; its digest names them.
//
// Numbers are exact. Prices are decimals parsed from text, and amounts are rationals until a line is made. Each line is
// rounded once, half to even, to the currency's minor unit. A Decimal is a coefficient and a scale. A library for
// decimals would not help: proration divides by the length of a period, which no decimal holds, so big.Rat does the
// arithmetic. A Decimal only has to keep its text.
//
// Read price.go first, then rate.go for what a term of it costs. Read timeline.go for which price holds when, and
// statement.go for how a period is put together.
package billing
