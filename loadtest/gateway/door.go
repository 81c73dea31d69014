package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// door asks a quota-agent over HTTP, as nginx would.
type door struct {
	url    string
	client http.Client
}

// checkTimeout is longer than a request may wait for a renewal.
const checkTimeout = 3 * time.Second

func newDoor(url string) *door {
	return &door{url: url, client: http.Client{Timeout: checkTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// decide asks for one unit. A request that never reached the agent was not admitted;
// one whose answer was lost may have been. It is a POST: net/http sends those once.
func (d *door) decide(ctx context.Context, tenant string) outcome {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, nil)
	if err != nil {
		return denied
	}
	r.Header.Set("X-Tenant", tenant)
	answer, err := d.client.Do(r)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return denied
	case err != nil:
		return unanswered
	}
	_, _ = io.Copy(io.Discard, answer.Body) // of no interest; the status is here
	_ = answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return admitted
	}
	return denied
}
