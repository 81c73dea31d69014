package leasing

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

const (
	// holdWait is how long a call is answered later at most, for the ledger to note its agent as a holder: less than an
	// agent waits before it gives the server up.
	holdWait = 100 * time.Millisecond
	// holdTimeout bounds one note.
	holdTimeout = 2 * time.Second
	// holdPause is how long nobody waits after the ledger failed to note. Leases are granted all the same, and the next
	// renewal tries again.
	holdPause = time.Second
	// holdWidth is how many notes are under way at once.
	holdWidth = 64
	// mostHolders bounds what this server remembers to have noted, agents times tenants, some forty bytes each. What it
	// forgets it notes again, with each renewal where more are live than that.
	mostHolders = 2_000_000
	// mostLate bounds what waits to be noted after the ledger did not, agents times tenants. What is beyond is noted by
	// its next renewal, or with its first usage.
	mostLate = 100_000
)

// holders has the ledger know who may have usage of which tenants before it can, so that usage
// is not taken to be complete before those have settled who may have some of it. Where the ledger is away it is noted
// once it is back.
type holders struct {
	ledger  ledger.Store
	unnoted prometheus.Counter
	width   chan struct{}

	mu    sync.Mutex
	known *ledger.Notes
	pause time.Time // until then the ledger is not asked
	late  []ledger.Hold
	waits int // tenants in late
}

func newHolders(l ledger.Store, m *Metrics) *holders {
	return &holders{ledger: l, unnoted: m.unnoted, width: make(chan struct{}, holdWidth), known: ledger.NewNotes(mostHolders)}
}

// note begins to note an epoch as a holder of tenants' leases, those that it is not known to hold. What it
// returns waits for that, no longer than holdWait from now.
func (h *holders) note(asked ledger.Hold) (wait func()) {
	hold := ledger.Hold{Epoch: asked.Epoch, Key: asked.Key}
	h.mu.Lock()
	noted := h.known.Of(hold.Epoch)
	for _, tenant := range asked.Tenants {
		if !noted.Has(tenant) {
			hold.Tenants = append(hold.Tenants, tenant)
		}
	}
	paused, known := time.Now().Before(h.pause), h.known
	h.mu.Unlock()
	if len(hold.Tenants) == 0 {
		return func() {}
	}
	if !paused {
		select {
		case h.width <- struct{}{}:
			done := make(chan error, 1)
			go func() { done <- h.write(hold, known) }()
			late := time.After(holdWait)
			return func() {
				select {
				case err := <-done:
					if err == nil {
						return
					}
				case <-late:
				}
				h.unnoted.Inc()
			}
		default:
		}
	}
	h.unnoted.Inc()
	h.later(hold)
	return func() {}
}

// later keeps what is still to be noted.
func (h *holders) later(hold ledger.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits+len(hold.Tenants) <= mostLate {
		h.late, h.waits = append(h.late, hold), h.waits+len(hold.Tenants)
	}
}

// run notes what is late, until ctx ends.
func (h *holders) run(ctx context.Context) {
	tick := time.NewTicker(holdPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.catchUp(ctx)
		}
	}
}

// catchUp notes what is late, as far as the ledger takes it.
func (h *holders) catchUp(ctx context.Context) {
	h.mu.Lock()
	late, known := h.late, h.known
	h.late, h.waits = nil, 0
	h.mu.Unlock()
	for i, hold := range late {
		h.width <- struct{}{}
		if h.write(hold, known) != nil || ctx.Err() != nil {
			for _, rest := range late[i+1:] {
				h.later(rest)
			}
			return
		}
	}
}

// forget notes all again: the ledger is another, which may lack what was noted in the one before.
func (h *holders) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = ledger.NewNotes(mostHolders)
}

// write outlives the call that it is for, as the lease does. known is what was known to be noted when it began; if all
// is forgotten by the time it ends, the ledger that noted it may be no more.
func (h *holders) write(hold ledger.Hold, known *ledger.Notes) error {
	ctx, cancel := context.WithTimeout(context.Background(), holdTimeout)
	defer cancel()
	err := h.ledger.Hold(ctx, hold)
	<-h.width
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.pause = time.Now().Add(holdPause)
		if h.waits+len(hold.Tenants) <= mostLate {
			h.late, h.waits = append(h.late, hold), h.waits+len(hold.Tenants)
		}
		return err
	}
	for _, tenant := range hold.Tenants {
		known.Add(ledger.NewTouch(hold.Epoch, tenant))
	}
	return nil
}
