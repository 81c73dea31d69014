package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/f4ee788f/quota/internal/engines"
)

// The kinds of engines for a server that is started.
const (
	Auto   = "auto"   // real where they are installed, else memory
	Real   = "real"   // a Redis Cluster of six nodes and a Postgres
	Memory = "memory" // leases in process, a SQLite ledger
)

// ErrEngines means that the word for the engines is not known.
var ErrEngines = errors.New("stack: no such engines")

// Check reports whether the word for the engines is known. The error wraps ErrEngines.
func Check(word string) error {
	switch word {
	case Auto, Real, Memory:
		return nil
	}
	return fmt.Errorf("%w: %q; write %s, %s or %s", ErrEngines, word, Auto, Real, Memory)
}

// Stack is a running server and what it stands on.
type Stack struct {
	Addr    string // of gRPC
	HTTP    string // of metrics and REST
	Engines string // Real or Memory
	Redis   []string
	Shared  bool // the server is in this process
	stops   []func() error

	postgres string // URL, of the one that owns all
}

// Stop ends the server and then its engines.
func (s *Stack) Stop() error {
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		errs = append(errs, s.stops[i]())
	}
	s.stops = nil
	return errors.Join(errs...)
}

// Server is the server to start.
type Server struct {
	Policy  string // the document in force
	Program string // on real engines, a process of its own; "" for a server in this process
	// FoldEvery is how often it folds reports into blocks; 0 for its own interval.
	FoldEvery time.Duration
}

// Start starts engines, by their word, and a server, and prints on progress what it does. Stop must be called; without
// it everything ends with this process.
func Start(ctx context.Context, word string, server Server, progress io.Writer) (*Stack, error) {
	if err := Check(word); err != nil {
		return nil, err
	}
	if word == Auto {
		word = Real
		_, noRedis := engines.FindRedis()
		_, noPostgres := engines.FindPostgres()
		if err := errors.Join(noRedis, noPostgres); err != nil {
			fmt.Fprintf(progress, "engines: memory, for the real ones are not here: %v\n", err)
			word = Memory
		}
	}
	if word == Memory {
		return embedded(ctx, server)
	}
	return startReal(ctx, server, progress)
}
