package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/f4ee788f/quota/loadtest/chaos/proxy"
)

var networkFaults = []fault{
	{name: "partition", lane: "network", what: "a gateway is cut off from every server: bytes wait", do: onMember("cut off", (*proxy.Link).Cut)},
	{name: "partition-broken", lane: "network", what: "likewise: connections are reset and refused", do: onMember("reset and refused", (*proxy.Link).Break)},
	{name: "one-way-requests", lane: "network", what: "nothing of a gateway reaches the servers; what they send arrives", do: onMember("requests cut", func(l *proxy.Link) { l.CutOneWay(proxy.Forth) })},
	{name: "one-way-answers", lane: "network", what: "what a gateway sends arrives; nothing comes back", do: onMember("answers cut", func(l *proxy.Link) { l.CutOneWay(proxy.Back) })},
	{name: "pair-cut", lane: "network", what: "a gateway and one server are cut off from each other", do: cutPair},
	{name: "delay", lane: "network", what: "everything between a gateway and the servers takes 50 to 400 ms", do: onMember("delayed by 50 to 400 ms", func(l *proxy.Link) { l.Delay(50*time.Millisecond, 400*time.Millisecond) })},
	{name: "duplicated", lane: "network", what: "every call of every gateway is made again, at once or up to 2 s later", do: misdeed("every call repeated", proxy.Repeat)},
	{name: "reordered", lane: "network", what: "calls overtake one another by up to 400 ms, and come again later", do: misdeed("calls held, overtaken and repeated", proxy.Reorder|proxy.Repeat)},
	{name: "answers-lost", lane: "network", what: "half of the calls are executed and answered with an error", do: misdeed("half of the answers lost", proxy.LoseAnswers)},
	{name: "server-postgres-cut", lane: "network", what: "a server is cut off from Postgres: bytes wait, then arrive", do: cutPostgres},
}

// onMember does something to all links of one agent for some seconds.
func onMember(what string, do func(*proxy.Link)) func(context.Context, *site, *rand.Rand) error {
	return func(ctx context.Context, s *site, random *rand.Rand) error {
		m, d := s.pick(random, 0, gateways+1), between(random, 2*time.Second, 7*time.Second)
		defer s.expose("partition")()
		for _, l := range m.links {
			do(l)
		}
		s.say("%s: %s for %v", m.id, what, d)
		s.sleep(ctx, d)
		for _, l := range m.links {
			l.Heal()
		}
		s.say("%s: in contact again", m.id)
		return nil
	}
}

func cutPair(ctx context.Context, s *site, random *rand.Rand) error {
	m, i, d := s.pick(random, 0, gateways+1), random.IntN(servers), between(random, 2*time.Second, 7*time.Second)
	defer s.expose("partition")()
	m.links[i].Cut()
	s.say("%s and %s: cut off from each other for %v", m.id, s.servers[i].name, d)
	s.sleep(ctx, d)
	m.links[i].Heal()
	s.say("%s and %s: in contact again", m.id, s.servers[i].name)
	return nil
}

// misdeed sends all calls through the relays for some seconds.
func misdeed(what string, does proxy.Misdeed) func(context.Context, *site, *rand.Rand) error {
	return func(ctx context.Context, s *site, random *rand.Rand) error {
		if s.o.control != "" {
			return errNot // the relays are taken
		}
		d := between(random, 3*time.Second, 7*time.Second)
		if does&proxy.LoseAnswers != 0 {
			defer s.expose("answers lost")()
		}
		point := func(to func(*server) string) {
			for _, m := range s.every() {
				for i, l := range m.links {
					l.Point(to(s.servers[i]))
				}
			}
		}
		// Calls are undisturbed while connections break. An agent whose calls are held as well would lose contact,
		// which is another fault.
		point(func(v *server) string { return v.relay.Addr() })
		s.sleep(ctx, repoint)
		for _, v := range s.servers {
			v.relay.Do(does)
		}
		s.say("all gateways: %s for %v", what, d)
		s.sleep(ctx, d)
		for _, v := range s.servers {
			v.relay.Do(0)
		}
		s.sleep(ctx, repoint)
		point(func(v *server) string { return v.grpc })
		s.say("all gateways: calls as they are")
		return nil
	}
}

// repoint is longer than a call is held, and longer than an agent takes to find a server again.
const repoint = 500 * time.Millisecond

func cutPostgres(ctx context.Context, s *site, random *rand.Rand) error {
	v, d := s.servers[random.IntN(servers)], between(random, 2*time.Second, 6*time.Second)
	v.postgres.Cut()
	s.say("%s and Postgres: cut off from each other for %v", v.name, d)
	s.sleep(ctx, d)
	v.postgres.Heal()
	s.say("%s and Postgres: in contact again", v.name)
	return nil
}
