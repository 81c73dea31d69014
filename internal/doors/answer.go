package doors

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/f4ee788f/quota/pkg/client"
)

// answer writes a decision as HTTP and returns the status. denied replaces 429, where
// a gateway understands only some other one; 0 does not.
func answer(w http.ResponseWriter, d client.Decision, denied int) int {
	setHeaders(w.Header(), d)
	if d.Allowed {
		w.WriteHeader(http.StatusOK)
		return http.StatusOK
	}
	status := statusOf(d)
	if status == http.StatusTooManyRequests && denied != 0 {
		status = denied
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problemOf(d)) // the gateway has gone away; nobody is left to be told
	return status
}

// statusOf is the status of a denial: 503 where the service and not the caller is at fault.
func statusOf(d client.Decision) int {
	switch d.Reason {
	case client.ReasonUnknown, client.ReasonOutage, client.ReasonDeadline, client.ReasonCrowded, client.ReasonClosed:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Reason   string   `json:"reason"`
	Violated []string `json:"violated-policies,omitempty"`
}

func problemOf(d client.Decision) problem {
	p := problem{
		Type:  "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title: "Request cannot be satisfied as assigned quota has been exceeded", Reason: d.Reason.String(),
	}
	if d.Limit() != "" {
		p.Violated = []string{d.Limit()}
	}
	return p
}

func setHeaders(h http.Header, d client.Decision) {
	if d.Limit() != "" {
		h.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", d.Limit(), d.Quota(), seconds(d.Window())))
		h.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", d.Limit(), d.Remaining(), seconds(d.Reset())))
	}
	if !d.Allowed && d.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(d.RetryAfter), 10))
	}
}

func seconds(d time.Duration) int64 { return max(int64((d+time.Second-1)/time.Second), 1) }

// headersOf is the same as Envoy's headers.
func headersOf(d client.Decision) []*corev3.HeaderValue {
	h := make(http.Header)
	setHeaders(h, d)
	var list []*corev3.HeaderValue
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		if v := h.Get(name); v != "" {
			list = append(list, &corev3.HeaderValue{Key: strings.ToLower(name), Value: v})
		}
	}
	return list
}
