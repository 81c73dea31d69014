package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/f4ee788f/quota/loadtest/chaos/proxy"
)

var serverFaults = []fault{
	{name: "server-killed", lane: "server", what: "kill -9 of a server at any time", do: killServer},
	{name: "server-killed-before", lane: "server", what: "kill -9 of a server that has reports and has opened the transaction", do: killAt(proxy.BeforeWrite)},
	{name: "server-killed-inserted", lane: "server", what: "kill -9 of a server after the insert, before COMMIT is sent", do: killAt(proxy.BeforeCommit)},
	{name: "server-killed-committed", lane: "server", what: "kill -9 of a server after COMMIT, before it hears of it", do: killAt(proxy.AfterCommit)},
	{name: "server-killed-folding", lane: "server", what: "kill -9 of the leader with a block written and not committed", do: killAt(proxy.InFold)},
	{name: "server-hung", lane: "server", what: "a server is stopped (SIGSTOP) for seconds and goes on", do: hangServer},
	{name: "server-added", lane: "server", what: "one more server starts under load", do: addServer, once: true},
}

// reached bounds how long an armed gap may wait for its transaction.
const reached = 8 * time.Second

func (s *site) running() []*server {
	var list []*server
	for _, v := range s.servers {
		if v.unit != nil {
			list = append(list, v)
		}
	}
	return list
}

func killServer(ctx context.Context, s *site, random *rand.Rand) error {
	all := s.running()
	v := all[random.IntN(len(all))]
	if err := v.unit.Kill(); err != nil {
		return err
	}
	s.say("%s: kill -9", v.name)
	return s.restart(ctx, v, between(random, 200*time.Millisecond, 3*time.Second))
}

// killAt kills the server that comes to the gap first, at the gap.
func killAt(gap proxy.Gap) func(context.Context, *site, *rand.Rand) error {
	return func(ctx context.Context, s *site, random *rand.Rand) error {
		killed := make(chan *server, len(s.servers))
		first := make(chan struct{}, 1)
		all := s.running()
		for _, v := range all {
			v.gaps.Arm(gap, func() {
				select {
				case first <- struct{}{}:
				default:
					return // another was faster; its transaction just breaks
				}
				if err := v.unit.Kill(); err != nil {
					s.fail(err)
				}
				killed <- v
			})
		}
		timer := time.NewTimer(reached)
		defer timer.Stop()
		var v *server
		select {
		case v = <-killed:
		case <-timer.C:
		case <-ctx.Done():
		}
		for _, o := range all {
			o.gaps.Disarm()
		}
		if v == nil {
			select {
			case first <- struct{}{}: // from now on nobody is killed
				return fmt.Errorf("%w: no server came %s", errNot, gap)
			default:
				v = <-killed
			}
		}
		s.say("%s: kill -9 %s", v.name, gap)
		return s.restart(ctx, v, between(random, 200*time.Millisecond, 2*time.Second))
	}
}

func (s *site) restart(ctx context.Context, v *server, down time.Duration) error {
	s.sleep(ctx, down)
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	if err := s.startServer(back, v); err != nil {
		return err
	}
	// The server may have to wait for engines that are away; heal waits for it in the end.
	soon, cancel := context.WithTimeout(back, 5*time.Second)
	defer cancel()
	if err := s.ready(soon, v); err != nil {
		s.say("%s: started again, not ready yet", v.name)
		return nil
	}
	s.say("%s: ready again", v.name)
	return nil
}

func hangServer(ctx context.Context, s *site, random *rand.Rand) error {
	all := s.running()
	v := all[random.IntN(len(all))]
	d := between(random, time.Second, 5*time.Second)
	defer s.expose("hung server")()
	if err := v.unit.Pause(); err != nil {
		return err
	}
	s.say("%s: SIGSTOP for %v", v.name, d)
	s.sleep(ctx, d)
	s.say("%s: SIGCONT", v.name)
	return v.unit.Resume()
}

func addServer(ctx context.Context, s *site, _ *rand.Rand) error {
	v := s.servers[servers]
	if v.unit != nil {
		return errNot
	}
	if err := s.restart(ctx, v, 0); err != nil {
		return err
	}
	s.say("%s: added", v.name)
	return nil
}
