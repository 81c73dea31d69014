package httpretry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Defaults of New.
const (
	DefaultRetries = 3
	DefaultBase    = 100 * time.Millisecond
	DefaultLongest = 10 * time.Second
	DefaultPatient = 30 * time.Second
	DefaultHeld    = 1024
)

// longestHold bounds how long a denial answers others. A limit may be raised before the time that it stated.
const longestHold = time.Minute

// maxDrain bounds what is read of an answer that is not returned, so that its connection can be used again.
const maxDrain = 64 << 10

// IdempotencyKey is the header that makes a request of any method repeatable.
const IdempotencyKey = "Idempotency-Key"

// Transport makes requests again that were denied (429), met a service that is away (502, 503, 504), or lost their
// connection. It does so only with requests that do no harm twice: idempotent methods, and those with an
// Idempotency-Key, whose body can be sent again. It is an http.RoundTripper, safe for concurrent use.
type Transport struct {
	next    http.RoundTripper
	backoff backoff
	patient time.Duration
	key     func(*http.Request) string
	held    held
}

// Option changes a default of New.
type Option func(*Transport)

// WithRetries says how often a request is made again at most; 0 is never.
func WithRetries(n int) Option { return func(t *Transport) { t.backoff.retries = max(n, 0) } }

// WithBackoff says what the random wait of the first retry may reach, and what that of any may: it doubles each time.
func WithBackoff(base, longest time.Duration) Option {
	return func(t *Transport) { t.backoff.base, t.backoff.longest = max(base, 0), max(longest, 0) }
}

// WithPatience bounds the time from a request's start to the start of its last attempt. A wait that might not end
// within it, or within the context's deadline, is not begun: the answer at hand is returned instead.
func WithPatience(d time.Duration) Option { return func(t *Transport) { t.patient = d } }

// WithHeld says how many denials are remembered at most; 0 for none. While one is, requests of its key wait with it. A
// request that has not the time is answered the denial's status without a body, and Retry-After.
func WithHeld(most int) Option { return func(t *Transport) { t.held.most = max(most, 0) } }

// WithKey says which requests share a denial: those of one key. By default they have the same method, host, path and
// Authorization.
func WithKey(key func(*http.Request) string) Option { return func(t *Transport) { t.key = key } }

// New returns a Transport over next; nil is http.DefaultTransport. It starts nothing.
func New(next http.RoundTripper, opts ...Option) *Transport {
	t := &Transport{
		next:    next,
		backoff: backoff{DefaultRetries, DefaultBase, DefaultLongest},
		patient: DefaultPatient,
		key:     whoAndWhat,
		held:    held{most: DefaultHeld, longest: longestHold},
	}
	if next == nil {
		t.next = http.DefaultTransport
	}
	for _, o := range opts {
		o(t)
	}
	return t
}

func whoAndWhat(r *http.Request) string {
	return r.Method + " " + r.URL.Host + r.URL.EscapedPath() + " " + r.Header.Get("Authorization")
}

// RoundTrip implements http.RoundTripper. Beyond errors of the transport below, it returns the context's error when
// that ends during a wait.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	end := time.Now().Add(t.patient)
	if d, ok := r.Context().Deadline(); ok && d.Before(end) {
		end = d
	}
	key := t.key(r)
	if answer, err := t.wait(r, key, end); answer != nil || err != nil {
		closeBody(r)
		return answer, err
	}
	repeatable := repeatable(r)
	request := r
	for attempt := 0; ; attempt++ {
		answer, err := t.next.RoundTrip(request)
		now := time.Now()
		stated := t.learn(key, answer, now)
		again := outcomeOf(answer, err).mayRepeat(repeatable) && rewindable(r) && r.Context().Err() == nil
		wait, again := t.backoff.wait(attempt, again, stated, end.Sub(now), rand.Float64())
		if !again {
			return answer, err
		}
		next, rewindErr := rewound(r)
		if rewindErr != nil {
			return answer, err // the attempt's own outcome says more
		}
		drain(answer)
		if err := sleep(r.Context(), wait); err != nil {
			closeBody(next)
			return nil, err
		}
		request = next
	}
}

// wait waits while the key is held. It returns an answer where that is too long.
func (t *Transport) wait(r *http.Request, key string, end time.Time) (*http.Response, error) {
	now := time.Now()
	left, status := t.held.ask(key, now)
	if left <= 0 {
		return nil, nil
	}
	if spread := t.backoff.spread(0); left+spread <= end.Sub(now) {
		return nil, sleep(r.Context(), left+time.Duration(rand.Float64()*float64(spread)))
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Retry-After": {strconv.FormatInt(int64((left+time.Second-1)/time.Second), 10)}},
		Body:   http.NoBody, Request: r,
	}, nil
}

// learn returns the wait that an answer states, and remembers a denial.
func (t *Transport) learn(key string, answer *http.Response, now time.Time) time.Duration {
	if answer == nil {
		return 0
	}
	stated, _ := StatedWait(answer.Header, now)
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable {
		t.held.deny(key, stated, answer.StatusCode, now)
	}
	return stated
}

func outcomeOf(answer *http.Response, err error) outcome {
	if err == nil {
		return outcome{status: answer.StatusCode}
	}
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial"
	return outcome{unsent: unsent, lost: !unsent}
}

// repeatable reports whether a request does no harm twice.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get(IdempotencyKey) != ""
}

func rewindable(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// rewound is the request with its body from the start; a RoundTripper must not change the one that it was given.
func rewound(r *http.Request) (*http.Request, error) {
	next := r.Clone(r.Context())
	if r.GetBody == nil {
		return next, nil
	}
	body, err := r.GetBody()
	next.Body = body
	return next, err
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // nothing of it was read
	}
}

func drain(answer *http.Response) {
	if answer == nil {
		return
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxDrain) // whatever it says, it is not returned
	_ = answer.Body.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
