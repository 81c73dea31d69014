package doors

import (
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/f4ee788f/quota/internal/headers"
	"github.com/f4ee788f/quota/pkg/client"
)

// answer writes a decision as HTTP and returns the status. denied replaces 429, where
// a gateway understands only some other one; 0 does not.
func answer(w http.ResponseWriter, d client.Decision, denied int) int {
	d.EachHeader(w.Header().Set)
	status := d.Status()
	if d.Allowed {
		w.WriteHeader(status)
		return status
	}
	if status == http.StatusTooManyRequests && denied != 0 {
		status = denied
	}
	w.Header().Set("Content-Type", headers.ContentType)
	w.WriteHeader(status)
	_, _ = w.Write(d.ProblemOf(status)) // the gateway has gone away; nobody is left to be told
	return status
}

// headersOf is the same as Envoy's headers, in lower case as HTTP/2 has them.
func headersOf(d client.Decision) []*corev3.HeaderValue {
	var list []*corev3.HeaderValue
	d.EachHeader(func(name, value string) {
		list = append(list, &corev3.HeaderValue{Key: strings.ToLower(name), Value: value})
	})
	return list
}
