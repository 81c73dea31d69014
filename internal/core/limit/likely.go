package limit

// Bounds of Likely.QuantilePPM. Below half of the requests it would say little; above 99.9 % it is the most again.
const (
	MinQuantilePPM = 500_000
	MaxQuantilePPM = 999_000
)

// Likely says that of a cost what is likely is reserved, and not the most: what so many of the requests turned out to
// cost at most.
type Likely struct {
	Cost        string // one of the policy's
	QuantilePPM int64  // millionths of the requests: MinQuantilePPM to MaxQuantilePPM
	By          string // the attribute whose values are told apart; empty for none
}
