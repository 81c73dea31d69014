package budgets

import (
	"fmt"
	"time"
)

// budget is what the tenant may use.
type budget struct {
	minute int64 // tokens a minute
	burst  int64 // tokens at once; 0 for windows of a minute
	month  int64 // millionths of a dollar
}

// document is the policy under which a strategy is played.
func (b *budget) document(s *strategy) string {
	out := "tokens_out"
	if s.likely {
		out = "{name: tokens_out, reserve: {quantile: 95%, by: model, first: 256}}"
	}
	minute := fmt.Sprintf("rate: %d/minute, burst: %d", b.minute, b.burst)
	if b.burst == 0 {
		minute = fmt.Sprintf("rate: %d/minute, algorithm: fixed_window", b.minute)
	}
	return fmt.Sprintf(`
costs: [tokens_in, %s]
plans:
  llm:
    limits:
      - {name: requests, rate: 100000/minute, meter: requests}
      - {name: tokens, %s, cost: {tokens_in: 1, tokens_out: 1}, meter: tokens}
      - name: month
        algorithm: fixed_window
        rate: %d/month
        meter: microdollars
        cost: {by: model, weights: {small: {tokens_in: 0.15, tokens_out: 0.6}, large: {tokens_in: 2.5, tokens_out: 10}}}
      - {name: input, cost: tokens_in, meter: tokens_in}
      - {name: output, cost: tokens_out, meter: tokens_out}
tenants: [{id: acme, plan: llm}]
`, out, minute, b.month)
}

// ideal is one central limiter of tokens that denies nothing: it tells how many too many there were.
type ideal struct {
	*budget
	at    time.Time
	taken int64 // tokens, in units of a minute's nanosecond
}

// take returns how many more tokens than the budget were used until then, in any time up to then; at most 0 for none.
func (l *ideal) take(now time.Time, tokens int64) (over int64) {
	const minute = int64(time.Minute)
	if l.burst == 0 {
		if !now.Truncate(time.Minute).Equal(l.at) {
			l.at, l.taken = now.Truncate(time.Minute), 0
		}
		l.taken += tokens
		return l.taken - l.minute
	}
	if !l.at.IsZero() {
		l.taken = max(l.taken-l.back(now), 0)
	}
	l.at = now
	l.taken += tokens * minute
	return l.taken/minute - l.burst
}

// back is what the rate brought back since the last tokens; no more than there can be to bring back.
func (l *ideal) back(now time.Time) int64 {
	return int64(min(now.Sub(l.at), time.Minute)) * l.minute
}
