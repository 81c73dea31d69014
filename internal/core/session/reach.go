package session

import "time"

// neverAfter is how long calls fail before a client that never had an answer says so.
const neverAfter = time.Second

// reach is whether the server answers.
type reach struct {
	ever  bool // it has
	fails bool // the last call did
	told  bool // that it never has
	since time.Time
	why   string // of the last of them
}

// reached takes what came of a call: nil for an answer. It tells once of a server that was never reached.
func (l *Loop) reached(err error) {
	r := &l.reach
	if err == nil {
		*r = reach{ever: true}
		return
	}
	if !r.fails {
		r.fails, r.since = true, time.Now()
	}
	r.why = l.s.cfg.Why(err)
	if !r.ever && !r.told && time.Since(r.since) >= neverAfter {
		r.told = true
		l.s.log.Warn("never connected to the quota server; this goes on being tried", "server", l.s.cfg.Target, "because", r.why)
	}
}
