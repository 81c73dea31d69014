package limit

// Bounds of Likely.QuantilePPM. Below half of the requests it would say little; above 99.9 % it is the most again.
const (
	MinQuantilePPM = 500_000
	MaxQuantilePPM = 999_000
)

// Likely says that not the most of a cost is reserved, but what is likely. So many of the requests turned out to cost no
// more.
type Likely struct {
	Cost        string // one of the policy's
	QuantilePPM int64  // millionths of the requests: MinQuantilePPM to MaxQuantilePPM
	By          string // the attribute whose values are told apart; empty for none
	First       int64  // units reserved at most until enough requests are known: 1 to MaxUnits; 0 for no bound
}
