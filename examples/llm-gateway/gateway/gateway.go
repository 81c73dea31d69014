package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

const (
	maxBody   = 1 << 20  // bytes of a request
	maxAnswer = 16 << 20 // bytes of an answer that is not streamed
)

// Gateway proxies chat completions. It is safe for concurrent use.
type Gateway struct {
	quota    *client.Client
	upstream *url.URL
	tenants  map[string]string // by API key
	http     *http.Client
}

// New returns a gateway to the upstream. tenants has the tenant of each API key.
func New(quota *client.Client, upstream *url.URL, tenants map[string]string) *Gateway {
	return &Gateway{quota: quota, upstream: upstream, tenants: tenants, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

// completion is what the gateway has to know of a request.
type completion struct {
	Model     string `json:"model"`
	Stream    bool   `json:"stream"`
	MaxTokens int64  `json:"max_completion_tokens"`
	OldMax    int64  `json:"max_tokens"` // older clients say this
	Messages  []struct {
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

// ServeHTTP answers POST /v1/chat/completions.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	tenant, known := g.tenants[key]
	if !known {
		refuse(w, http.StatusUnauthorized, "invalid_api_key", "the API key is not known")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "invalid_request_error", fmt.Sprintf("the request has more than %d bytes", maxBody))
		return
	}
	var asked completion
	if err := json.Unmarshal(body, &asked); err != nil || asked.Model == "" {
		refuse(w, http.StatusBadRequest, "invalid_request_error", "the request is not a JSON object that names a model")
		return
	}
	m, d := g.open(r.Context(), tenant, &asked)
	httpquota.Headers(d, w.Header().Set)
	if m == nil {
		httpquota.WriteDenial(w, d, httpquota.Status(d))
		return
	}
	if err := g.answer(w, r, body, asked.Stream, m); err != nil {
		refuse(w, http.StatusBadGateway, "upstream_error", "the model did not answer")
	}
}

// answer has the upstream answer the request, and ends its meter. An error means that nothing was written.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, body []byte, stream bool, m *meter) error {
	defer m.close()
	ctx, stop := context.WithCancel(r.Context()) // a stream whose budget ends is not generated to its end
	defer stop()
	if stream {
		var err error
		if body, err = withUsage(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.upstream.JoinPath(r.URL.Path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := g.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if stream && answer.StatusCode == http.StatusOK {
		relay(ctx, w, answer.Body, m)
		return nil
	}
	whole, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return err
	}
	if answer.StatusCode == http.StatusOK {
		var said struct{ Usage *Usage }
		if json.Unmarshal(whole, &said) == nil && said.Usage != nil {
			m.said(said.Usage)
		}
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(whole) // a caller who is gone has used it all the same
	return nil
}

// withUsage has the upstream say what a streamed answer used, in its last event.
func withUsage(body []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	all["stream_options"] = json.RawMessage(`{"include_usage":true}`)
	return json.Marshal(all)
}

// refuse answers an error as the upstream would.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	type problem struct {
		Message string `json:"message"`
		Type    string `json:"type"`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]problem{"error": {message, kind}})
}

var errEnded = errors.New("the budget has ended")
