package doors

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/f4ee788f/quota/internal/core/headers"
)

// problem is a call that is not answered as asked: what HTTP says of it, and a sentence.
type problem struct {
	status int
	detail string
	again  bool // the same call may succeed a second later
}

// Error implements error.
func (p *problem) Error() string { return p.detail }

// write answers with application/problem+json (RFC 9457).
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(p.status), p.status, p.detail})
	if err != nil {
		panic(err) // strings and a number always encode
	}
	h := w.Header()
	h.Set("Content-Type", headers.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	if p.again {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(append(body, '\n')) // the caller has gone away; nobody is left to be told
}
