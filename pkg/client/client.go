package client

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrClosed is returned by what needs an open client.
	ErrClosed = errors.New("client: closed")
	// ErrUnsettled is wrapped by Close when usage is left that the ledger has not
	// acknowledged.
	ErrUnsettled = errors.New("client: usage not settled")
	// ErrOption is wrapped by Dial's errors about its arguments.
	ErrOption = errors.New("client: invalid option")
)

// Client decides requests. It is safe for concurrent use, and one for each
// server and process is enough.
type Client struct {
	cfg config
}

// Dial returns a client of the quota server at target: host:port, several of them
// with commas between for servers that share their engines, unix:PATH, or any
// other target that gRPC knows. It waits up to WithFirstWait for the first
// policy, and succeeds without one: it fails only for invalid options. ctx
// bounds the wait, not the client's life. Close must be called.
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	return &Client{}, nil
}

// Allow asks for one unit; see AllowN.
func (c *Client) Allow(ctx context.Context, attributes ...Attribute) Decision {
	return c.AllowN(ctx, 1, attributes...)
}

// AllowN decides a request that costs n units: all limits that hold it must have
// them, or none is taken. It waits for the server, no longer than ctx and
// WithMaxWait, only where nothing is leased yet: the first request of a bucket,
// or each of a small limit. With n = 0 it tells whether one unit would be
// allowed as far as is known here, and takes nothing. n below 0 or above
// 1,000,000,000 is denied as invalid.
//
// The attributes are not kept. It allocates nothing while leases last.
func (c *Client) AllowN(ctx context.Context, n int64, attributes ...Attribute) Decision {
	return Decision{}
}

// Limiter resolves the attributes once and returns a handle for them, for the
// hottest paths. It follows changes of the policy and of the tenant. It waits
// for the tenant to be known, no longer than ctx and WithMaxWait, and then goes
// on without: the handle decides as AllowN would.
func (c *Client) Limiter(ctx context.Context, attributes ...Attribute) (*Limiter, error) {
	return &Limiter{}, nil
}

// Stats returns a snapshot. It visits every bucket: for metrics and tests, not for
// each request.
func (c *Client) Stats() Stats { return Stats{} }

// Agent returns the agent id in use.
func (c *Client) Agent() string { return c.cfg.agent }

// Close denies further requests, gives leases back, reports what was admitted
// and waits until that is acknowledged or ctx ends. It returns an error that
// wraps ErrUnsettled, and says how many units are left, if some are. All that
// the client started has ended when it returns.
func (c *Client) Close(ctx context.Context) error { return nil }

// Limiter is a handle for one set of attributes. It is safe for concurrent use, and
// needs no closing: what it holds goes when it is collected as garbage.
type Limiter struct{}

// Allow takes one unit and reports whether it may be spent. Where one limit holds
// the attributes, that is one atomic subtraction. It waits as AllowN does.
func (l *Limiter) Allow() bool { return false }

// AllowN takes n units; see Client.AllowN.
func (l *Limiter) AllowN(n int64) bool { return false }

// Decide takes n units and returns the whole decision; see Client.AllowN.
func (l *Limiter) Decide(ctx context.Context, n int64) Decision { return Decision{} }

type held struct{}

func (held) name() string          { return "" }
func (held) quota() int64          { return 0 }
func (held) window() time.Duration { return 0 }
func (held) remaining() int64      { return 0 }
func (held) reset() time.Duration  { return 0 }
