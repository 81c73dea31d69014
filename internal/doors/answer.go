package doors

import (
	"net/http"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

// statusHeader tells the status that the table has, where a gateway asked for another one.
const statusHeader = "X-Quota-Status"

// answer writes a decision as HTTP, and returns the status that the table has. denied replaces the status of the
// caller's own denials, for gateways that understand only one; 0 does not. unknown replaces 403 for unknown tenants; 0
// does not. openAI adds httpquota.OpenAIHeaders.
func answer(w http.ResponseWriter, d client.Decision, denied, unknown int, openAI bool) int {
	httpquota.Headers(d, w.Header().Set)
	if openAI {
		httpquota.OpenAIHeaders(d, w.Header().Set)
	}
	status := httpquota.StatusWith(d, unknown)
	if d.Allowed {
		w.WriteHeader(status)
		return status
	}
	w.Header().Set(statusHeader, strconv.Itoa(status))
	as := status
	if denied != 0 && status < http.StatusInternalServerError {
		as = denied
	}
	httpquota.WriteDenial(w, d, as)
	return status
}

// headersOf is the same as Envoy's headers, in lower case as HTTP/2 has them.
func headersOf(d client.Decision, openAI bool) []*corev3.HeaderValue {
	var list []*corev3.HeaderValue
	add := func(name, value string) {
		list = append(list, &corev3.HeaderValue{Key: strings.ToLower(name), Value: value})
	}
	httpquota.Headers(d, add)
	if openAI {
		httpquota.OpenAIHeaders(d, add)
	}
	return list
}
