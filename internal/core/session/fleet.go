package session

import "time"

// fleetFor is how long the largest count of agents holds after it was last said. Servers that do not hear all of them
// say fewer.
const fleetFor = time.Minute

// fleet is how many agents there are, as servers say.
type fleet struct {
	agents int64
	at     time.Time // when so many were said
}

// heard takes what a server said, 0 for nothing, and returns how many there are; 0 for not known.
func (f *fleet) heard(now time.Time, agents int32) int64 {
	if n := int64(agents); n > 0 && (n >= f.agents || now.Sub(f.at) >= fleetFor) {
		f.agents, f.at = n, now
	}
	return f.agents
}
