package session

import "time"

// neverAfter is how many calls fail before a client that never had an answer says so.
const neverAfter = 3

// reach is whether the server answers.
type reach struct {
	ever  bool // it has
	fails int  // calls since the last answer
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
	if r.fails == 0 {
		r.since = time.Now()
	}
	r.fails++
	r.why = l.s.cfg.Why(err)
	if !r.ever && r.fails == neverAfter {
		l.s.log.Warn("never connected to the quota server; this goes on being tried", "server", l.s.cfg.Target, "because", r.why)
	}
}
