package client

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/status"
)

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
func (l *loop) reached(err error) {
	r := &l.reach
	if err == nil {
		*r = reach{ever: true}
		return
	}
	if r.fails == 0 {
		r.since = time.Now()
	}
	r.fails++
	r.why = l.c.cfg.explain(err)
	if !r.ever && r.fails == neverAfter {
		l.c.log.Warn("never connected to the quota server; this goes on being tried", "server", l.c.cfg.target, "because", r.why)
	}
}

// explain says why a call failed, and what to do where one side talks TLS and the other does not.
func (c *config) explain(err error) string {
	why := status.Convert(err).Message()
	switch {
	case c.tls == nil && strings.Contains(why, "server preface"):
		why += "; if the server talks TLS, say so (WithTLS)"
	case c.tls != nil && strings.Contains(why, "first record does not look like a TLS handshake"):
		why += "; the server does not talk TLS (WithTLS)"
	}
	return why
}

// defaultLogger is that of a program that chose none.
func defaultLogger() *slog.Logger { return slog.New(warnings{slog.Default().Handler()}) }

// warnings lets warnings and errors through, and nothing else.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
