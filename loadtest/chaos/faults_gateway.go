package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

var gatewayFaults = []fault{
	{name: "gateway-killed", lane: "gateway", what: "kill -9 of a gateway; it starts again under its name", do: killGateway},
	{name: "agent-killed", lane: "gateway", what: "kill -9 of a quota-agent; it starts again under its name", do: killAgent},
	{name: "gateway-clock", lane: "gateway", what: "a gateway's clock jumps ten minutes ahead or back, and later is set right", do: jumpGateway},
	{name: "gateway-hung", lane: "gateway", what: "a gateway is stopped (SIGSTOP) for seconds and goes on", do: hangGateway},
	{name: "gateways-added", lane: "gateway", what: "more gateways start under load", do: addGateways, once: true},
}

const jump = 10 * time.Minute

// pick draws one of the gateways with a linked client. The first two may be killed; the others' clocks may be set.
func (s *site) pick(random *rand.Rand, from, to int) *member {
	return s.every()[from+random.IntN(to-from)]
}

func killGateway(ctx context.Context, s *site, random *rand.Rand) error {
	return s.killMember(ctx, s.pick(random, 0, gateways/2), between(random, 300*time.Millisecond, 3*time.Second))
}

func killAgent(ctx context.Context, s *site, random *rand.Rand) error {
	return s.killMember(ctx, s.every()[gateways], between(random, 300*time.Millisecond, 3*time.Second))
}

func (s *site) killMember(ctx context.Context, m *member, down time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unit.Exited() {
		return fmt.Errorf("%s has ended by itself: %s", m.id, m.unit.Log())
	}
	if err := m.unit.Kill(); err != nil {
		return err
	}
	m.lives[len(m.lives)-1].to = time.Now().UnixMicro()
	s.say("%s: kill -9", m.id)
	s.sleep(ctx, down)
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	if err := errors.Join(s.startMember(back, m), s.up(back, m)); err != nil {
		return err
	}
	s.say("%s: up again", m.id)
	return nil
}

func hangGateway(ctx context.Context, s *site, random *rand.Rand) error {
	m := s.pick(random, 0, gateways)
	m.mu.Lock()
	defer m.mu.Unlock()
	d := between(random, time.Second, 4*time.Second)
	defer s.expose("hung gateway")()
	if err := m.unit.Pause(); err != nil {
		return err
	}
	s.say("%s: SIGSTOP for %v", m.id, d)
	s.sleep(ctx, d)
	s.say("%s: SIGCONT", m.id)
	return m.unit.Resume()
}

func jumpGateway(ctx context.Context, s *site, random *rand.Rand) error {
	m := s.pick(random, gateways/2, gateways)
	by := jump
	if random.IntN(2) == 0 {
		by = -jump
	}
	if err := m.clock.Set(s.offset + by); err != nil {
		return err
	}
	s.say("%s: clock %v off", m.id, by)
	s.sleep(ctx, between(random, 2*time.Second, 5*time.Second))
	s.say("%s: clock right again", m.id)
	return m.clock.Set(s.offset)
}

func addGateways(ctx context.Context, s *site, _ *rand.Rand) error {
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	for i := range s.o.more {
		if err := s.addGateway(starting, fmt.Sprintf("gateway-%d", gateways+1+i), 0.25); err != nil {
			return err
		}
	}
	s.say("%d more gateways", s.o.more)
	return nil
}
