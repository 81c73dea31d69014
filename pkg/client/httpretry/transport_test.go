package httpretry_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f4ee788f/quota/pkg/client/httpretry"
)

// service answers one request after another; the last answer stays.
type service struct {
	answers []func(*http.Request) (*http.Response, error)
	bodies  []string
	at      []time.Time
	open    int // bodies of answers
	closed  int
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
		_ = r.Body.Close()
	}
	s.bodies, s.at = append(s.bodies, body), append(s.at, time.Now())
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return answer(r)
}

type countedBody struct {
	io.Reader
	s *service
}

func (b countedBody) Close() error { b.s.open--; b.s.closed++; return nil }

func (s *service) says(status int, header ...string) *service {
	s.answers = append(s.answers, func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		s.open++
		return &http.Response{StatusCode: status, Header: h, Body: countedBody{strings.NewReader("x"), s}, Request: r}, nil
	})
	return s
}

func (s *service) fails(err error) *service {
	s.answers = append(s.answers, func(*http.Request) (*http.Response, error) { return nil, err })
	return s
}

func request(t *testing.T, method, body string, header ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://upstream/x", reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

var (
	dial = &net.OpError{Op: "dial", Err: errors.New("refused")}
	read = &net.OpError{Op: "read", Err: errors.New("reset")}
)

func TestWhatIsMadeAgain(t *testing.T) {
	for _, c := range []struct {
		name     string
		request  func(*testing.T) *http.Request
		service  *service
		attempts int
		status   int // 0: an error
	}{
		{"denied", func(t *testing.T) *http.Request { return request(t, "GET", "") }, new(service).says(429).says(200), 2, 200},
		{"with its body from the start", func(t *testing.T) *http.Request { return request(t, "PUT", "body") }, new(service).says(503).says(503).says(200), 3, 200},
		{"a POST", func(t *testing.T) *http.Request { return request(t, "POST", "body") }, new(service).says(429).says(200), 1, 429},
		{"a POST with a key", func(t *testing.T) *http.Request { return request(t, "POST", "body", "Idempotency-Key", "k") }, new(service).says(429).says(200), 2, 200},
		{"a POST that was not sent", func(t *testing.T) *http.Request { return request(t, "POST", "body") }, new(service).fails(dial).says(200), 2, 200},
		{"a POST that was", func(t *testing.T) *http.Request { return request(t, "POST", "body") }, new(service).fails(read).says(200), 1, 0},
		{"a lost GET", func(t *testing.T) *http.Request { return request(t, "GET", "") }, new(service).fails(read).says(200), 2, 200},
		{"no more than three times", func(t *testing.T) *http.Request { return request(t, "GET", "") }, new(service).says(503), 4, 503},
		{"an error in the end", func(t *testing.T) *http.Request { return request(t, "GET", "") }, new(service).fails(read), 4, 0},
		{"a mistake", func(t *testing.T) *http.Request { return request(t, "GET", "") }, new(service).says(404), 1, 404},
		{"a body that cannot be sent again", func(t *testing.T) *http.Request {
			r := request(t, "PUT", "body")
			r.GetBody = nil
			return r
		}, new(service).says(503), 1, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := c.request(t)
				answer, err := httpretry.New(c.service).RoundTrip(r)
				if (err != nil) != (c.status == 0) || err == nil && answer.StatusCode != c.status {
					t.Errorf("got %+v, %v, want %d", answer, err, c.status)
				}
				if len(c.service.bodies) != c.attempts {
					t.Errorf("got %d attempts, want %d", len(c.service.bodies), c.attempts)
				}
				for _, body := range c.service.bodies {
					if body != c.service.bodies[0] {
						t.Errorf("got body %q, want %q", body, c.service.bodies[0])
					}
				}
				if want := map[bool]int{true: 1}[err == nil]; c.service.open != want {
					t.Errorf("got %d open bodies, want %d", c.service.open, want)
				}
			})
		})
	}
}

func TestWaitsAsLongAsIsStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service).says(429, "RateLimit", `"a";r=0;t=7`).says(429, "Retry-After", "3").says(200)
		answer, err := httpretry.New(s, httpretry.WithHeld(0)).RoundTrip(request(t, "GET", ""))
		if err != nil || answer.StatusCode != 200 {
			t.Fatalf("got %+v, %v", answer, err)
		}
		for i, want := range []time.Duration{7 * time.Second, 3 * time.Second} {
			spread := httpretry.DefaultBase << i
			if got := s.at[i+1].Sub(s.at[i]); got < want || got > want+spread {
				t.Errorf("attempt %d: after %v, want %v to %v", i+1, got, want, want+spread)
			}
		}
	})
}

func TestDoesNotBeginAWaitThatDoesNotFit(t *testing.T) {
	for _, within := range []time.Duration{5 * time.Second, time.Hour} { // beyond its own patience, too
		synctest.Test(t, func(t *testing.T) {
			s := new(service).says(429, "Retry-After", "60").says(200)
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			begin := time.Now()
			answer, err := httpretry.New(s).RoundTrip(request(t, "GET", "").WithContext(ctx))
			if err != nil || answer.StatusCode != 429 || !time.Now().Equal(begin) || s.closed != 0 {
				t.Errorf("got %+v, %v after %v, with %d bodies closed", answer, err, time.Since(begin), s.closed)
			}
		})
	}
}

func TestAContextEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service).says(503, "Retry-After", "20")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		if answer, err := httpretry.New(s).RoundTrip(request(t, "GET", "").WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v", answer, err)
		}
		if took := time.Since(begin); took != time.Second || s.closed != 1 {
			t.Errorf("ended after %v, with %d bodies closed", took, s.closed)
		}
	})
}

// One denial is heard by all: who has the time waits, and who has not is answered alike.
func TestADenialIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(service).says(429, "Retry-After", "20").says(200)
		transport := httpretry.New(s, httpretry.WithRetries(0))
		ask := func(within time.Duration, header ...string) *http.Response {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			answer, err := transport.RoundTrip(request(t, "GET", "", header...).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		if got := ask(time.Minute); got.StatusCode != 429 {
			t.Errorf("got %d", got.StatusCode)
		}
		time.Sleep(time.Second / 2)
		got := ask(time.Second)
		if got.StatusCode != 429 || got.Header.Get("Retry-After") != "20" || len(s.at) != 1 {
			t.Errorf("without the time: got %+v after %d attempts", got, len(s.at))
		}
		if got := ask(time.Second, "Authorization", "Bearer other"); got.StatusCode != 200 {
			t.Errorf("another caller: got %d", got.StatusCode)
		}
		if got := ask(time.Minute); got.StatusCode != 200 || s.at[2].Sub(s.at[0]) < 20*time.Second {
			t.Errorf("with the time: got %d after %v", got.StatusCode, s.at[2].Sub(s.at[0]))
		}
	})
}
