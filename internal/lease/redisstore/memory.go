package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
)

// Redis forgets: it is flushed, restarted without its data, or a replica is promoted that was behind. Each
// shard has a mark, which says since when the shard remembers everything. A server looks at the marks, and at
// the history that each node says it is of. A new mark begins if the mark is gone, the history is another, or
// it went back behind the last look. The steps are told.
//
// Losses of the last moments of a failover do not show there, unless a look saw more than the new master has.
// Agents prove them by what they were told (package lease, forget.go).

var (
	//go:embed memory.lua
	memorySource string
	//go:embed begin.lua
	beginSource  string
	memoryScript = redis.NewScript(memorySource)
	beginScript  = redis.NewScript(beginSource)
)

const (
	// lookEvery is how often marks are looked at: a command for each shard, and one for the cluster's layout.
	lookEvery = 250 * time.Millisecond
	// lookTimeout bounds one look. A shard that did not answer is taken to be as before.
	lookTimeout = time.Second
	// ahead is how far a mark may be ahead of its node's clock, in microseconds. The clocks of nodes that are
	// promoted one after another differ by less. No server wrote a mark that is further ahead.
	ahead = 3600_000_000
	// nothing is the memory of a store that did not look yet. It has to ask the ledger about every window that
	// the ledger counts.
	nothing = 1 << 53
)

// shard is a range of slots whose node remembers alike.
type shard struct {
	first, last int
	memory      lease.Memory
}

// seen is what the last look saw at a mark.
type seen struct {
	life    string
	history string // the node's replication id
	offset  int64  // in it
	evicted int64
	forgot  int64
}

// look is what a node says of itself, and of the mark.
type look struct {
	mark    string
	slots   int
	life    string
	since   int64
	lost    bool
	now     int64
	history string
	offset  int64
	forgot  int64
	before  string // the history that this one went on from, and
	from    int64  // the first offset in it that it does not have
	evicted int64
}

// Run looks at the marks until ctx ends, and tells of each loss that it notices. It also tells forgotBefore,
// when that rises, the time before which leases may be forgotten, in Unix microseconds. The marks say that
// time, so all servers tell the same.
func (s *Store) Run(ctx context.Context, tell func(lease.Loss), forgotBefore func(int64)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		was := s.forgot
		if s.look(ctx, tell); s.forgot > was {
			forgotBefore(s.forgot)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look looks once.
func (s *Store) look(ctx context.Context, tell func(lease.Loss)) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	layout, err := s.layout(ctx)
	if err != nil {
		return
	}
	looks := make(map[string]*look)
	var mu sync.Mutex
	var all sync.WaitGroup
	for mark, ranges := range layout {
		all.Go(func() {
			l, err := s.lookAt(ctx, mark)
			if err != nil {
				return
			}
			for _, r := range ranges {
				l.slots += r.last - r.first + 1
			}
			mu.Lock()
			defer mu.Unlock()
			looks[mark] = l
		})
	}
	all.Wait()
	alive := make(map[string]bool, len(looks))
	for _, l := range looks {
		alive[l.history] = true
	}
	memories := make(map[string]lease.Memory, len(looks))
	for mark, l := range looks {
		if s.moved(l, layout, looks) {
			continue
		}
		if m, err := s.judge(ctx, l, alive, tell); err == nil {
			memories[mark] = m
		}
	}
	s.remember(layout, memories)
}

// moved reports whether the mark's slot moved, during the look, to a node that another mark of the layout is
// for. The node that it left was not looked at, and is as before. The next look has a layout that says so.
func (s *Store) moved(l *look, layout map[string][]shard, looks map[string]*look) bool {
	if was, known := s.seen[l.mark]; !known || was.history == l.history {
		return false
	}
	for mark := range layout {
		if mark == l.mark {
			continue
		}
		if other, ok := looks[mark]; ok && other.history == l.history || !ok && s.seen[mark].history == l.history {
			return true
		}
	}
	return false
}

// layout returns the slots of each shard by its mark's key: the first of a series of keys that is in one of the
// slots. A shard that no key with this prefix can be in has none.
func (s *Store) layout(ctx context.Context) (map[string][]shard, error) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return map[string][]shard{s.prefix + "memory": {{first: 0, last: -1}}}, nil
	}
	parts, err := c.ClusterShards(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	layout := make(map[string][]shard, len(parts))
	for _, p := range parts {
		ranges := make([]shard, 0, len(p.Slots))
		for _, r := range p.Slots {
			ranges = append(ranges, shard{first: int(r.Start), last: int(r.End)})
		}
		for i := range 16 * slots {
			key := s.prefix + "memory:{" + strconv.Itoa(i) + "}"
			slot := slotOf(key)
			if slices.ContainsFunc(ranges, func(r shard) bool { return r.first <= slot && slot <= r.last }) {
				layout[key] = ranges
				break
			}
			if i > 0 && slot == slotOf(s.prefix+"memory:{0}") && strings.Contains(s.prefix, "{") {
				break // braces in the prefix keep all keys in one slot
			}
		}
	}
	return layout, nil
}

func (s *Store) lookAt(ctx context.Context, mark string) (*look, error) {
	v, err := memoryScript.Run(ctx, s.client, []string{mark}).Slice()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	l := &look{mark: mark}
	info := ""
	if len(v) == 6 {
		l.life, _ = v[0].(string)
		l.since, _ = v[1].(int64)
		lost, _ := v[2].(int64)
		l.lost = lost == 1
		info, _ = v[3].(string)
		l.now, _ = v[4].(int64)
		l.forgot, _ = v[5].(int64)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "master_replid":
			l.history = value
		case "master_repl_offset":
			l.offset = number
		case "master_replid2":
			l.before = value
		case "second_repl_offset":
			l.from = number
		case "evicted_keys":
			l.evicted = number
		}
	}
	return l, nil
}

// judge compares a look with the one before, and returns what the shard remembers. It begins a new mark if
// something was lost, or if there was none.
func (s *Store) judge(ctx context.Context, l *look, alive map[string]bool, tell func(lease.Loss)) (lease.Memory, error) {
	was, known := s.seen[l.mark]
	why, lost, begin := lease.Why(""), false, l.life == ""
	forged := l.since > l.now+ahead || l.forgot > l.now+ahead
	if forged {
		l.forgot = 0
	}
	// A shard that was looked at under another mark gained or lost slots, and remembers as before. If it was
	// not, nobody here knows what it remembers: agents that have leases of it prove a loss.
	unknown := begin && !known && !s.remembers(l.mark)
	switch {
	case forged:
		why, lost, begin = lease.Emptied, true, true
	case !known:
	case l.life != "" && l.life != was.life && !l.lost && l.forgot == was.forgot && l.history == was.history && l.evicted >= was.evicted:
		// Another server saw the loss first, or found later what this one told of.
		if l.evicted > was.evicted {
			why = lease.Evicted
		}
	case l.life != was.life:
		// Another server may have found the mark gone first, and not have known of a loss.
		why, lost, begin = lease.Emptied, true, begin || !l.lost
	case was.history == "" || l.history == was.history && l.offset >= was.offset:
		if l.history == was.history && l.evicted > was.evicted {
			why, begin = lease.Evicted, true
		}
	case l.history == was.history:
		why, lost, begin = lease.Behind, true, true
	case l.before == was.history:
		if l.from <= was.offset {
			why, lost, begin = lease.Behind, true, true
		}
	case !alive[was.history]: // or else the slots moved to another node, with their keys
		why, lost, begin = lease.Another, true, true
	}
	if begin {
		above := ""
		if lost || unknown {
			above = strconv.FormatInt(s.forgot, 10)
		}
		v, err := beginScript.Run(ctx, s.client, []string{l.mark}, l.life, rand.Text(), flag(lost), above).Slice()
		if err == nil && len(v) != 4 {
			err = errors.New("an answer of another form")
		}
		if err != nil {
			return lease.Memory{}, fmt.Errorf("redis: %s: %w", l.mark, err) // the next look sees the same
		}
		l.life, _ = v[0].(string)
		l.since, _ = v[1].(int64)
		n, _ := v[2].(int64)
		l.lost = n == 1
		l.now = l.since
		l.forgot, _ = v[3].(int64)
	}
	s.forgot = max(s.forgot, l.forgot)
	s.seen[l.mark] = seen{life: l.life, history: l.history, offset: l.offset, evicted: l.evicted, forgot: l.forgot}
	if why != "" {
		part := "all"
		if l.slots > 0 {
			part = fmt.Sprintf("%d of %d slots", l.slots, slots)
		}
		tell(lease.Loss{Why: why, Part: part})
	}
	// Leases that were forgotten have ended a term later; steps need not be told any more.
	lately := l.lost && l.now-l.since < lease.LongTerm+2*lookEvery.Microseconds()
	return lease.Memory{Since: l.since, Lost: lately}, nil
}

// remembered is what the last look found.
type remembered struct {
	shards []shard // by slot
	lost   bool    // one of them forgot something lately
}

// remember tells the steps what was seen. Shards that did not answer stay as they were.
func (s *Store) remember(layout map[string][]shard, memories map[string]lease.Memory) {
	next := new(remembered)
	for mark, ranges := range layout {
		m, ok := memories[mark]
		for _, r := range ranges {
			r.memory = m
			if !ok {
				r.memory = s.memory.Load().at(r.first)
			}
			next.shards = append(next.shards, r)
			next.lost = next.lost || r.memory.Lost
		}
	}
	slices.SortFunc(next.shards, func(a, b shard) int { return a.first - b.first })
	s.memory.Store(next)
}

// recall tells steps that depend on it how far back their shards remember.
func (s *Store) recall(renewals []lease.Renewal) {
	m := s.memory.Load()
	lost := m != nil && m.lost
	for i := range renewals {
		r := &renewals[i]
		if r.Now == 0 && (lost || r.Spec.Ledgered) {
			r.Memory = m.of(s.key(r))
		}
	}
}

// remembers reports whether it was seen how far back the key's shard remembers.
func (s *Store) remembers(key string) bool {
	m := s.memory.Load()
	return m != nil && len(m.shards) > 0 && m.of(key).Since != nothing
}

func (m *remembered) of(key string) lease.Memory {
	if m != nil && len(m.shards) == 1 {
		return m.shards[0].memory // perhaps of a Redis without slots
	}
	return m.at(slotOf(key))
}

func (m *remembered) at(slot int) lease.Memory {
	if m == nil {
		return lease.Memory{Since: nothing}
	}
	i, found := slices.BinarySearchFunc(m.shards, slot, func(p shard, slot int) int { return p.first - slot })
	if !found {
		i--
	}
	if i < 0 || m.shards[i].last < slot {
		return lease.Memory{Since: nothing}
	}
	return m.shards[i].memory
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
