package doors

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// Client is what a door asks: a client.Client.
type Client interface {
	AllowN(ctx context.Context, n int64, attributes ...client.Attribute) client.Decision
}

// CheckConfig says how HTTP checks are read. It must be valid; see Validate.
type CheckConfig struct {
	Attributes Attributes
	Require    []string // attributes without which a check is answered 400
	CostHeader string   // holds a check's cost in units; empty, or absent in the check: 1
	AllowFree  bool     // a cost may be 0: such a check looks, and spends nothing
	Unknown    int      // the status of tenants that are not known; 0: 403
	OpenAI     bool     // answers have httpquota.OpenAIHeaders, too
}

// Check answers HTTP checks: 200, or a denial's status with the reason. It is an http.Handler, safe
// for concurrent use.
type Check struct {
	client  Client
	config  CheckConfig
	metrics *Metrics
}

// NewCheck returns the handler. It starts nothing.
func NewCheck(c Client, config CheckConfig, m *Metrics) *Check {
	return &Check{client: c, config: config, metrics: m}
}

// ServeHTTP decides one check. Its method, path and body belong to the gateway's own
// request: all methods are answered alike and the body is not read.
func (c *Check) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	attributes, cost, denied, err := c.read(r)
	if err != nil {
		c.metrics.count(doorCheck, resultBadRequest)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d := c.client.AllowN(r.Context(), cost, attributes...)
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // else net/http would wait for a body that nobody reads, and that may never come
	}
	answer(w, d, denied, c.config.Unknown, c.config.OpenAI)
	c.metrics.count(doorCheck, resultOf(d))
}

// read returns what a check says. An error is a mistake in the gateway's configuration.
func (c *Check) read(r *http.Request) (attributes []client.Attribute, cost int64, denied int, err error) {
	attributes = make([]client.Attribute, 0, len(c.config.Attributes.list))
	c.config.Attributes.Of(r, func(name, value string) {
		attributes = append(attributes, client.Attribute{Name: name, Value: value})
	})
	for _, name := range c.config.Require {
		if !slices.ContainsFunc(attributes, func(a client.Attribute) bool { return a.Name == name }) {
			return nil, 0, 0, fmt.Errorf("the check has no attribute %s", name)
		}
	}
	cost = 1
	if c.config.CostHeader != "" {
		if text := r.Header.Get(c.config.CostHeader); text != "" {
			least := int64(1)
			if c.config.AllowFree {
				least = 0
			}
			cost, err = strconv.ParseInt(text, 10, 64)
			if err != nil || cost < least || cost > limit.MaxUnits {
				return nil, 0, 0, fmt.Errorf("%s: %s is not a cost: write %d to %d", c.config.CostHeader, limit.Quote(text), least, int64(limit.MaxUnits))
			}
		}
	}
	if r.URL.RawQuery == "" {
		return attributes, cost, 0, nil
	}
	if text := r.URL.Query().Get("denied"); text != "" {
		denied, err = strconv.Atoi(text)
		if err != nil || denied < 400 || denied > 599 {
			return nil, 0, 0, fmt.Errorf("denied=%s is not a status: write 400 to 599", limit.Quote(text))
		}
	}
	return attributes, cost, denied, nil
}
