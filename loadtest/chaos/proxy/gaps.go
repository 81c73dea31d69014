package proxy

import (
	"encoding/binary"
	"strings"
	"sync"
)

// Gap is a place between two steps of a server's transaction.
type Gap string

// The gaps, as a server's messages to Postgres show them.
const (
	// BeforeWrite: reports came, the transaction is open, nothing is written yet.
	BeforeWrite Gap = "before the transaction's first statement"
	// BeforeCommit: the reports are inserted, COMMIT is not sent.
	BeforeCommit Gap = "after insert, before COMMIT"
	// AfterCommit: Postgres committed the reports and the server never hears of it.
	AfterCommit Gap = "after COMMIT, before the reply"
	// InFold: a block is written, COMMIT is not sent.
	InFold Gap = "in the middle of a fold"
)

// AllGaps are the gaps.
var AllGaps = []Gap{BeforeWrite, BeforeCommit, AfterCommit, InFold}

// Gaps watches the connections of one server to Postgres. Zero is ready.
type Gaps struct {
	mu   sync.Mutex
	gap  Gap // empty while nothing is armed
	fire func()
}

// Arm calls fire once, when the next transaction reaches the gap: fire returns before any
// byte goes on, and the connection then ends.
func (g *Gaps) Arm(gap Gap, fire func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gap, g.fire = gap, fire
}

// Disarm undoes Arm, and reports whether fire had not been called yet.
func (g *Gaps) Disarm() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	armed := g.fire != nil
	g.gap, g.fire = "", nil
	return armed
}

// at fires if that gap is armed.
func (g *Gaps) at(gap Gap) bool {
	g.mu.Lock()
	fire := g.fire
	if g.gap != gap {
		fire = nil
	}
	if fire != nil {
		g.gap, g.fire = "", nil
	}
	g.mu.Unlock()
	if fire == nil {
		return false
	}
	fire()
	return true
}

// Tap is for a Link between the server and Postgres, without TLS.
func (g *Gaps) Tap() Tap { return &session{gaps: g, statements: make(map[string]string)} }

// session is one connection: PostgreSQL's protocol 3.0 as far as transactions go.
type session struct {
	gaps *Gaps

	mu         sync.Mutex
	begun      bool // the startup message has passed
	rest       [2][]byte
	statements map[string]string // prepared, by name
	intake     bool              // this transaction stores reports
	stored     bool              // and has sent their rows
	fold       bool              // this transaction has sent a block
	committing bool
}

// Pass splits the stream into messages and lets whole ones go on.
func (s *session) Pass(way Direction, chunk []byte) (on []byte, stop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := append(s.rest[way], chunk...)
	done := 0
	for {
		head := 5
		if way == Forth && !s.begun {
			head = 4 // the startup message has no type
		}
		if len(rest)-done < head {
			break
		}
		m := rest[done:]
		size := head - 4 + int(binary.BigEndian.Uint32(m[head-4:]))
		if len(m) < size {
			break
		}
		if way == Forth && !s.begun {
			s.begun = true
		} else if s.look(way, m[0], m[5:size]) {
			return rest[:done], true
		}
		done += size
	}
	s.rest[way] = append([]byte(nil), rest[done:]...)
	return rest[:done:done], false
}

// look notes what a message does and reports whether a gap was met at it.
func (s *session) look(way Direction, kind byte, body []byte) bool {
	if way == Back {
		switch {
		case kind == 'C' && s.committing && s.stored && strings.HasPrefix(word(body), "COMMIT"):
			return s.gaps.at(AfterCommit)
		case kind == 'Z' && len(body) == 1 && body[0] == 'I': // no transaction is open
			s.intake, s.stored, s.fold, s.committing = false, false, false, false
		}
		return false
	}
	switch kind {
	case 'P':
		name, more := cut(body)
		query, _ := cut(more)
		s.statements[name] = query
	case 'B':
		_, more := cut(body)
		name, _ := cut(more)
		return s.statement(s.statements[name])
	case 'Q':
		query := strings.ToLower(word(body))
		if strings.HasPrefix(query, "commit") {
			s.committing = true
			switch {
			case s.stored:
				return s.gaps.at(BeforeCommit)
			case s.fold:
				return s.gaps.at(InFold)
			}
		}
	}
	return false
}

// statement is one that is executed.
func (s *session) statement(query string) bool {
	switch {
	case strings.Contains(query, "FROM frontier") && strings.Contains(query, "FOR UPDATE") && !s.intake:
		s.intake = true
		return s.gaps.at(BeforeWrite)
	case strings.Contains(query, "INSERT INTO reports"):
		s.stored = true
	case strings.Contains(query, "INSERT INTO blocks"):
		s.fold = true
	}
	return false
}

// cut returns a string that ends with a zero byte, and what follows it.
func cut(b []byte) (s string, rest []byte) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:]
		}
	}
	return string(b), nil
}

func word(b []byte) string { s, _ := cut(b); return s }
