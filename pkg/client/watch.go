package client

import (
	"context"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// watch keeps a stream of what changes open and sends it on, until ctx ends.
func (c *Client) watch(ctx context.Context, to chan<- watchEvent) {
	req := &quotav1.WatchRequest{Agent: c.cfg.agent, Epoch: c.epoch}
	fails := 0
	for ctx.Err() == nil {
		err := c.follow(ctx, req, to, func() { fails = 0 })
		if ctx.Err() != nil {
			return
		}
		fails++
		if fails == 3 {
			c.log.Warn("changes are not followed at present", "error", err)
		}
		t := time.NewTimer(retryIn(fails, 2*firstRetry, lastRetry))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// follow opens one stream and reads it to its end. req is kept at what was received.
func (c *Client) follow(ctx context.Context, req *quotav1.WatchRequest, to chan<- watchEvent, ok func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.api.Watch(ctx, req)
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		ok()
		e := watchEvent{refresh: m.GetRefreshTenants()}
		if m.Policy != nil {
			p, err := wire.PolicyFromProto(m.Policy)
			if err == nil {
				e.rules, err = limit.CompilePolicy(p)
			}
			if err != nil {
				return err // the old policy goes on; the stream is tried again later
			}
		}
		for _, p := range m.Tenants {
			t, err := wire.TenantFromProto(p)
			if err != nil {
				return err
			}
			e.tenants = append(e.tenants, t)
		}
		if m.Switches != nil {
			s, err := wire.SwitchesFromProto(m.Switches)
			if err != nil {
				return err
			}
			e.switches = &s
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
		if e.rules != nil {
			req.PolicyVersion = e.rules.Policy.Version
		}
		if m.TenantChange > 0 {
			req.TenantChange = m.TenantChange
		}
	}
}
