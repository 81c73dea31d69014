package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var redisFaults = []fault{
	{name: "redis-killed", lane: "redis", what: "kill -9 of a master; its replica takes over, and it comes back empty", do: killMaster},
	{name: "redis-hung", lane: "redis", what: "a master is stopped (SIGSTOP) until it was failed over, and goes on as a replica", do: hangMaster},
	{name: "redis-clock", lane: "redis", what: "a replica with its clock ten minutes off takes over, and later gives way to one that is right", can: needsClock, do: promoteOff},
	{name: "redis-slots-moved", lane: "redis", what: "slots with buckets in them move from one master to another", do: moveSlots},
	{name: "redis-shard-added", lane: "redis", once: true, what: "one more master with a replica joins under load, and takes over slots with buckets in them", do: addShard},
	{name: "redis-flushed", lane: "redis", what: "FLUSHALL on every master", do: flushAll},
}

func needsClock(s *site) error {
	if s.library == "" {
		return errors.New("no C compiler for the library that sets an engine's clock")
	}
	return nil
}

func node(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: time.Second, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// on runs commands on one node.
func on(addr string, talk func(*redis.Client) error) (err error) {
	c := node(addr)
	defer func() { err = errors.Join(err, c.Close()) }()
	return talk(c)
}

// anyMaster draws a master that has buckets.
func (s *site) anyMaster(ctx context.Context, random *rand.Rand) (string, error) {
	masters, err := s.redis.Masters(ctx)
	if err != nil {
		return "", err
	}
	random.Shuffle(len(masters), func(i, j int) { masters[i], masters[j] = masters[j], masters[i] })
	for _, addr := range masters {
		var n int64
		if err := on(addr, func(c *redis.Client) (err error) { n, err = c.DBSize(ctx).Result(); return err }); err != nil {
			return "", err
		}
		if n > 0 {
			return addr, nil
		}
	}
	return masters[0], nil
}

func killMaster(ctx context.Context, s *site, random *rand.Rand) error {
	return s.failOver(ctx, random, "kill -9", func(back context.Context, addr string) error {
		if err := s.redis.Kill(addr); err != nil {
			return err
		}
		return s.redis.WaitHealthy(back)
	}, s.redis.Restart)
}

func hangMaster(ctx context.Context, s *site, random *rand.Rand) error {
	return s.failOver(ctx, random, "SIGSTOP", func(back context.Context, addr string) error {
		if err := s.redis.Pause(addr); err != nil {
			return err
		}
		return s.redis.WaitHealthy(back)
	}, func(_ context.Context, addr string) error { return s.redis.Resume(addr) })
}

// failOver takes a master away until another has taken over, and then gives it back.
func (s *site) failOver(ctx context.Context, random *rand.Rand, what string, away func(context.Context, string) error, back func(context.Context, string) error) error {
	addr, err := s.anyMaster(ctx, random)
	if err != nil {
		return err
	}
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	defer s.expose(dataLost)()
	s.say("redis %s: %s", addr, what)
	if err := away(undoing, addr); err != nil {
		return err
	}
	s.say("redis %s: another has taken over", addr)
	s.sleep(ctx, between(random, 0, 2*time.Second))
	if err := back(undoing, addr); err != nil {
		return err
	}
	if err := s.redis.WaitHealthy(undoing); err != nil {
		return err
	}
	s.say("redis %s: back as a replica", addr)
	return nil
}

// promoteOff starts a replica again with its clock off, has it take over, and ends that by another failover. It does
// not set a running node's clock, because Redis's own timers use it. A node whose clock steps back neither votes nor
// takes over until that time has come again.
func promoteOff(ctx context.Context, s *site, random *rand.Rand) error {
	by := jump
	if random.IntN(2) == 0 {
		by = -jump
	}
	var replica string
	if err := s.failOver(ctx, random, fmt.Sprintf("kill -9, with a replica whose clock is %v off", by), func(back context.Context, addr string) error {
		var err error
		if replica, err = replicaOf(back, addr); err != nil {
			return err
		}
		s.setOff(replica, by)
		if err := errors.Join(s.redis.Restart(back, replica), s.redis.WaitHealthy(back)); err != nil {
			return err
		}
		if err := s.redis.Kill(addr); err != nil {
			return err
		}
		return s.redis.WaitHealthy(back)
	}, s.redis.Restart); err != nil {
		return err
	}
	s.sleep(ctx, between(random, time.Second, 3*time.Second))
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	defer s.expose(dataLost)()
	s.setOff(replica, 0)
	if err := s.redis.Kill(replica); err != nil {
		return err
	}
	if err := s.redis.WaitHealthy(undoing); err != nil {
		return err
	}
	s.say("redis %s: kill -9 of the one that is off; it starts again with the right time", replica)
	if err := s.redis.Restart(undoing, replica); err != nil {
		return err
	}
	return s.redis.WaitHealthy(undoing)
}

// setOff sets a node's clock from its next start on.
func (s *site) setOff(addr string, by time.Duration) {
	_, port, _ := net.SplitHostPort(addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off["redis-"+port] = by
}

func replicaOf(ctx context.Context, master string) (replica string, err error) {
	err = on(master, func(c *redis.Client) error {
		info, err := c.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		_, rest, ok := strings.Cut(info, "slave0:ip=127.0.0.1,port=")
		port, _, more := strings.Cut(rest, ",")
		if !ok || !more {
			return fmt.Errorf("master %s has no replica", master)
		}
		replica = "127.0.0.1:" + port
		return nil
	})
	return replica, err
}

func flushAll(ctx context.Context, s *site, _ *rand.Rand) error {
	masters, err := s.redis.Masters(ctx)
	if err != nil {
		return err
	}
	defer s.expose(dataLost)()
	for _, addr := range masters {
		if err := on(addr, func(c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
			return err
		}
	}
	s.say("redis: FLUSHALL on %d masters", len(masters))
	return nil
}

// moveSlots moves the slots of a master's buckets to another, as redis-cli --cluster reshard does.
func moveSlots(ctx context.Context, s *site, random *rand.Rand) error {
	from, err := s.anyMaster(ctx, random)
	if err != nil {
		return err
	}
	masters, err := s.redis.Masters(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(masters), func(a string) bool { return a == from })
	moving, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	return s.reshard(moving, from, others[random.IntN(len(others))], masters, 1)
}

// addShard starts one more master with a replica. It moves half of every other master's slots with buckets there.
func addShard(ctx context.Context, s *site, _ *rand.Rand) error {
	masters, err := s.redis.Masters(ctx)
	if err != nil {
		return err
	}
	moving, cancel := context.WithTimeout(context.WithoutCancel(ctx), undo)
	defer cancel()
	to, err := s.redis.AddShard(moving)
	if err != nil {
		return err
	}
	s.say("redis %s: a shard more", to)
	moved := 0
	for _, from := range masters {
		switch err := s.reshard(moving, from, to, append(slices.Clone(masters), to), 2); {
		case err == nil:
			moved++
		case !errors.Is(err, errNot):
			return err
		}
	}
	if moved == 0 {
		return fmt.Errorf("%w: no master has a bucket", errNot)
	}
	return nil
}

// reshard moves one of so many slots with buckets, but at least one, from a master to another.
func (s *site) reshard(ctx context.Context, from, to string, masters []string, of int) error {
	ids := make(map[string]string)
	for _, addr := range masters {
		if err := on(addr, func(c *redis.Client) (err error) {
			ids[addr], err = c.Do(ctx, "CLUSTER", "MYID").Text()
			return err
		}); err != nil {
			return err
		}
	}
	var slots []int64
	if err := on(from, func(c *redis.Client) error {
		keys, err := c.Keys(ctx, "*").Result()
		if err != nil {
			return err
		}
		for _, k := range keys {
			slot, err := c.ClusterKeySlot(ctx, k).Result()
			if err != nil {
				return err
			}
			if !slices.Contains(slots, slot) {
				slots = append(slots, slot)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if len(slots) == 0 {
		return fmt.Errorf("%w: %s has no bucket", errNot, from)
	}
	slots = slots[:(len(slots)+of-1)/of]
	keys := 0
	for _, slot := range slots {
		n, err := s.moveSlot(ctx, slot, from, to, ids, masters)
		if err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
		keys += n
	}
	s.say("redis: %d slots with %d buckets moved from %s to %s", len(slots), keys, from, to)
	return s.redis.WaitHealthy(ctx)
}

func (s *site) moveSlot(ctx context.Context, slot int64, from, to string, ids map[string]string, masters []string) (moved int, err error) {
	set := func(addr string, args ...any) error {
		return on(addr, func(c *redis.Client) error {
			return c.Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err()
		})
	}
	if err := errors.Join(set(to, "IMPORTING", ids[from]), set(from, "MIGRATING", ids[to])); err != nil {
		return 0, err
	}
	host, text, _ := net.SplitHostPort(to)
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, err
	}
	for {
		var keys []string
		if err := on(from, func(c *redis.Client) (err error) {
			if keys, err = c.ClusterGetKeysInSlot(ctx, int(slot), 100).Result(); err != nil || len(keys) == 0 {
				return err
			}
			args := []any{"MIGRATE", host, number, "", 0, 1000, "KEYS"}
			for _, k := range keys {
				args = append(args, k)
			}
			return c.Do(ctx, args...).Err()
		}); err != nil {
			return moved, err
		}
		if len(keys) == 0 {
			break
		}
		moved += len(keys)
		s.sleep(ctx, 50*time.Millisecond) // the slot stays in between for a while
	}
	errs := []error{set(to, "NODE", ids[to]), set(from, "NODE", ids[to])}
	for _, addr := range masters {
		if addr != from && addr != to {
			errs = append(errs, set(addr, "NODE", ids[to]))
		}
	}
	return moved, errors.Join(errs...)
}
