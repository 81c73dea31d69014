package judge

import (
	"strings"
	"time"
)

// inquiry is what was looked up for one agent, and what it may look up.
type inquiry struct {
	asking    chan struct{} // held by the one look-up under way
	beyond    int64         // versions from here on were never in force, for numbers have no gap; 0 where none was asked for
	tenants   map[string]standing
	histories map[string]history
	looked    time.Time // when the oldest of these was
	lookups
	key  string    // that its agent last came with
	used time.Time // when that was
}

// lookups is what was left of a budget of look-ups, at a time.
type lookups struct {
	left float64
	at   time.Time
}

// refill adds what came since, for so many agents.
func (l *lookups) refill(now time.Time, agents float64) {
	l.left = min(l.left+agents*judgeRate*now.Sub(l.at).Seconds(), agents*judgeBurst)
	l.at = now
}

// may charges a look-up to an agent and to its key. Each invented agent gets a budget of its own, so all agents of a
// key share that of judgeFamily.
func (j *Judge) may(key string, in *inquiry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	in.refill(now, 1)
	of := j.keys[key]
	if of == nil {
		j.roomForKey(now)
		of = &lookups{left: judgeFamily * judgeBurst, at: now}
		j.keys[strings.Clone(key)] = of
	}
	of.refill(now, judgeFamily)
	switch {
	case in.left < 1:
		return errLookups
	case of.left < 1:
		return errKeyLookups
	}
	in.left--
	of.left--
	return nil
}

// roomForKey makes room for one more key. Full budgets go first; if there are none, any goes.
func (j *Judge) roomForKey(now time.Time) {
	if len(j.keys) < judgedAgents {
		return
	}
	for key, of := range j.keys {
		if of.refill(now, judgeFamily); of.left >= judgeFamily*judgeBurst {
			delete(j.keys, key)
		}
	}
	for key := range j.keys {
		if len(j.keys) < judgedAgents {
			return
		}
		delete(j.keys, key)
	}
}

// of returns an agent's inquiry, or nil if there is no room. Where its key has its share already, an idle agent of that
// key gives way. Where all places are taken, an idle agent of the key with the most does. So a caller that invents
// agents takes places from its own key. Operators always have one.
func (j *Judge) of(key, agent string) *inquiry {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	in := j.agents[agent]
	if in == nil {
		if agent != Operators && !j.roomFor(key, now) {
			return nil
		}
		in = &inquiry{asking: make(chan struct{}, 1), lookups: lookups{left: judgeBurst, at: now}}
		j.agents[strings.Clone(agent)] = in
	}
	in.key, in.used = strings.Clone(key), now
	return in
}

// roomFor makes room for one more agent of a key, if it can.
func (j *Judge) roomFor(key string, now time.Time) bool {
	of := make(map[string]int)
	for name, in := range j.agents {
		// Its budget is full again, and its findings have expired.
		if len(in.asking) == 0 && now.Sub(in.used) >= judgedFor {
			delete(j.agents, name)
			continue
		}
		of[in.key]++
	}
	switch {
	case of[key] >= judgedOfKey:
		return j.evict(map[string]int{key: of[key]})
	case len(j.agents) >= judgedAgents:
		return j.evict(of)
	}
	return true
}

// evict forgets one idle inquiry of the given keys. It picks the key with the most inquiries, and of those the one used
// longest ago. It returns false where none is idle.
func (j *Judge) evict(of map[string]int) bool {
	victim := Operators
	for name, in := range j.agents {
		if name == Operators || of[in.key] == 0 || len(in.asking) > 0 {
			continue
		}
		if best := j.agents[victim]; victim == Operators || of[in.key] > of[best.key] || of[in.key] == of[best.key] && in.used.Before(best.used) {
			victim = name
		}
	}
	if victim == Operators {
		return false
	}
	delete(j.agents, victim)
	return true
}
