package httpretry

import (
	"net/http"
	"time"
)

// backoff is full jitter: the wait is what the server asks for, and a random part of base * 2^attempt.
type backoff struct {
	retries int           // attempts beyond the first
	base    time.Duration // of the first retry
	longest time.Duration // that the random part may reach
}

// wait returns how long to wait before a request is made again; ok is false where it is not. attempt counts from 0.
// again says whether the outcome allows it at all. stated is what the server asks for, 0 for nothing. left is what is
// left of the request's time: a wait that might not end in it is not begun. place is random in [0, 1).
func (b backoff) wait(attempt int, again bool, stated, left time.Duration, place float64) (wait time.Duration, ok bool) {
	spread := b.spread(attempt)
	if !again || attempt >= b.retries || stated+spread > left {
		return 0, false
	}
	return stated + time.Duration(place*float64(spread)), true
}

// spread is what the random part may reach.
func (b backoff) spread(attempt int) time.Duration {
	if d := b.base << min(attempt, 30); d>>min(attempt, 30) == b.base && d < b.longest {
		return d
	}
	return b.longest
}

// outcome is what became of an attempt: an answer's status, or an error.
type outcome struct {
	status int
	unsent bool // an error before anything was sent
	lost   bool // an error after that
}

// mayRepeat reports whether an outcome allows the request to be made again. What was never sent always may, else only
// what does no harm twice.
func (o outcome) mayRepeat(repeatable bool) bool {
	if o.unsent {
		return true
	}
	switch o.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return repeatable
	}
	return o.lost && repeatable
}
