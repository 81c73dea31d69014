package limit

import "strconv"

var (
	algorithms = [...]string{
		TokenBucket: "token_bucket", FixedWindow: "fixed_window", LeakyBucket: "leaky_bucket",
		SlidingWindow: "sliding_window", SlidingWindowLog: "sliding_window_log", Concurrency: "concurrency",
	}
	outages      = [...]string{OutageFallback: "fallback", OutageOpen: "open", OutageClosed: "closed"}
	firstTouches = [...]string{TouchCredit: "credit", TouchAsk: "ask", TouchAdmit: "admit"}
	onChanges    = [...]string{ChangeKeep: "keep", ChangeProrate: "prorate"}
	enforcements = [...]string{Hard: "hard", Strict: "strict", Soft: "soft"}
)

// String returns the word a policy uses.
func (a Algorithm) String() string { return word(algorithms[:], int(a), "algorithm") }

// String returns the word a policy uses.
func (o Outage) String() string { return word(outages[:], int(o), "outage") }

// String returns the word a policy uses.
func (e Enforcement) String() string { return word(enforcements[:], int(e), "enforcement") }

// String returns the word a policy uses.
func (f FirstTouch) String() string { return word(firstTouches[:], int(f), "first_touch") }

// String returns the word a policy uses.
func (c OnChange) String() string { return word(onChanges[:], int(c), "on_change") }

func word(words []string, i int, kind string) string {
	if i < len(words) && words[i] != "" {
		return words[i]
	}
	return kind + "(" + strconv.Itoa(i) + ")"
}
