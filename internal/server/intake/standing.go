package intake

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	"github.com/f4ee788f/quota/internal/server/authn"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// nameAge is how long the ledger's name is told without another look. An agent that is told an old name hears the
	// new one with its next report.
	nameAge = time.Second
	// nameTimeout bounds a look. Settle waits for it.
	nameTimeout = time.Second
	// unnamedEvery is how often the log says that the ledger cannot be asked for its name.
	unnamedEvery = time.Minute
)

// ledgerName is the ledger's identity, as agents are told. Another ledger in its place, or the same one restored, may
// have forgotten what it acknowledged. Then all agents check whether it has their reports.
type ledgerName struct {
	ledger  ledger.Store
	log     *slog.Logger
	changed prometheus.Counter
	forget  func() // what this server knows the one before to hold

	looking sync.Mutex // one looks, the others say what they know
	mu      sync.Mutex
	name    string
	at      time.Time // when it was last asked for
	warned  time.Time // that it cannot be
}

// say returns the name; empty while it is not known.
func (n *ledgerName) say(ctx context.Context) string {
	n.mu.Lock()
	name, at := n.name, n.at
	n.mu.Unlock()
	if time.Since(at) < nameAge || !n.looking.TryLock() {
		return name
	}
	defer n.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	st, err := n.ledger.Standing(ctx, nil)
	if err != nil {
		n.unknown(err)
		return name
	}
	return n.is(st.Ledger)
}

// unknown notes that the ledger cannot be asked. It is not taken for another ledger.
func (n *ledgerName) unknown(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = time.Now()
	if n.at.Sub(n.warned) >= unnamedEvery {
		n.warned = n.at
		n.log.Warn("the ledger takes reports, and cannot be asked for its name: what it may have forgotten is not found out", "error", err)
	}
}

// is notes what the ledger says its name is, and returns it.
func (n *ledgerName) is(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.name != "" && n.name != name {
		n.changed.Inc()
		n.forget()
		n.log.Warn("the ledger is not the one that it was: it was restarted, restored or failed over; agents look whether it has what it acknowledged, and send again what is missing",
			"was", n.name, "is", name)
	}
	n.name, n.at = name, time.Now()
	return name
}

// Frontiers says how far epochs of an agent are settled.
func (s *Service) Frontiers(ctx context.Context, req *quotav1.FrontiersRequest) (*quotav1.FrontiersResponse, error) {
	if err := authn.SpeaksFor(ctx, req.Agent); err != nil {
		return nil, err
	}
	epochs := make([]ledger.Epoch, len(req.Epochs))
	for i, e := range req.Epochs {
		epochs[i] = ledger.Epoch{Agent: req.Agent, Epoch: e}
	}
	st, err := s.ledger.Standing(ctx, epochs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	resp := &quotav1.FrontiersResponse{Ledger: s.name.is(st.Ledger)}
	for i := range st.Frontiers {
		resp.Frontiers = append(resp.Frontiers, wire.FrontierToProto(st.Frontiers[i]))
	}
	return resp, nil
}
