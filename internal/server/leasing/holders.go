package leasing

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

const (
	// holdTimeout bounds one note.
	holdTimeout = 2 * time.Second
	// holdPause is how long the ledger is not asked after it failed to note.
	holdPause = time.Second
	// holdWidth is how many batches of notes are under way at once. Notes that come meanwhile go together: a fleet that
	// starts asks for ten thousand a second, and each batch costs the ledger a transaction.
	holdWidth = 2
	// holdBatch is about how many tenants a batch has at most: some tenths of a second of SQLite's one writer.
	holdBatch = 5_000
	// mostHolders bounds the notes that this server remembers, agents times tenants, some forty bytes each. Forgotten
	// ones are noted again: with more live ones than that, at each renewal.
	mostHolders = 2_000_000
	// mostLate bounds the notes that wait, agents times tenants. Others are noted by their next renewal, or with their
	// first usage.
	mostLate = 100_000
)

// holders registers with the ledger which agents may have usage of which tenants, within ledger.NotedWithin of the
// answer that lets them. Without this a window would be called complete before all of its holders have settled. No
// answer waits for it. While the ledger is away, holders are kept and noted once it is back.
type holders struct {
	ledger  ledger.Store
	unnoted prometheus.Counter

	mu      sync.Mutex
	known   *ledger.Notes // those that are noted, or wait
	pause   time.Time     // until then the ledger is not asked
	waiting []waitingHold
	tenants int // that wait
	writing int // batches under way
	writers sync.WaitGroup
}

// waitingHold is a hold that is not noted yet.
type waitingHold struct {
	ledger.Hold
	since time.Time // when it was asked for
}

func newHolders(l ledger.Store, m *Metrics) *holders {
	return &holders{ledger: l, unnoted: m.unnoted, known: ledger.NewNotes(mostHolders)}
}

// note has an epoch noted as a holder of leases of tenants, unless that is known.
func (h *holders) note(asked ledger.Hold) {
	hold := ledger.Hold{Epoch: asked.Epoch, Key: asked.Key}
	h.mu.Lock()
	defer h.mu.Unlock()
	noted := h.known.Of(hold.Epoch)
	for _, tenant := range asked.Tenants {
		if !noted.Has(tenant) {
			hold.Tenants = append(hold.Tenants, tenant)
		}
	}
	switch {
	case len(hold.Tenants) == 0:
		return
	case h.tenants+len(hold.Tenants) > mostLate:
		h.unnoted.Inc()
		return
	}
	for _, tenant := range hold.Tenants {
		h.known.Add(ledger.NewTouch(hold.Epoch, tenant))
	}
	h.addLocked(waitingHold{hold, time.Now()})
	h.beginLocked()
}

func (h *holders) addLocked(w waitingHold) {
	h.waiting = append(h.waiting, w)
	h.tenants += len(w.Tenants)
}

// beginLocked has notes written by another goroutine, unless enough of them are busy.
func (h *holders) beginLocked() {
	if len(h.waiting) > 0 && h.writing < holdWidth {
		h.writing++
		h.writers.Go(h.drain)
	}
}

// drain writes batches while notes wait.
func (h *holders) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.waiting) > 0 && !time.Now().Before(h.pause) {
		batch := h.takeLocked()
		h.mu.Unlock()
		err := h.write(batch)
		h.mu.Lock()
		h.writtenLocked(batch, err)
	}
	h.writing--
}

// takeLocked takes the oldest notes that wait.
func (h *holders) takeLocked() []waitingHold {
	n, tenants := 0, 0
	for n < len(h.waiting) && tenants < holdBatch {
		tenants += len(h.waiting[n].Tenants)
		n++
	}
	batch := h.waiting[:n:n]
	h.waiting = h.waiting[n:]
	h.tenants -= tenants
	return batch
}

// writtenLocked takes what came of a batch. Notes that failed wait again.
func (h *holders) writtenLocked(batch []waitingHold, err error) {
	if err != nil {
		h.pause = time.Now().Add(holdPause)
	}
	for _, w := range batch {
		if err != nil {
			h.addLocked(w)
		} else if time.Since(w.since) > ledger.NotedWithin {
			h.unnoted.Inc()
		}
	}
}

// run tries again what failed, until ctx ends. Then it waits until the rest is written, or fails.
func (h *holders) run(ctx context.Context) {
	tick := time.NewTicker(holdPause)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			h.mu.Lock()
			h.beginLocked()
			h.mu.Unlock()
		}
	}
	h.writers.Wait()
}

// forget has all notes made again. The ledger is another, which may lack those made in the one before.
func (h *holders) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = ledger.NewNotes(mostHolders)
}

// write notes a batch, one note for each epoch with the key that it has now. It outlives its calls, as their leases do.
func (h *holders) write(batch []waitingHold) error {
	ctx, cancel := context.WithTimeout(context.Background(), holdTimeout)
	defer cancel()
	at := make(map[ledger.Epoch]int)
	var holds []ledger.Hold
	for _, w := range batch {
		i, ok := at[w.Epoch]
		if !ok {
			i = len(holds)
			at[w.Epoch] = i
			holds = append(holds, ledger.Hold{Epoch: w.Epoch})
		}
		holds[i].Key = w.Key
		holds[i].Tenants = append(holds[i].Tenants, w.Tenants...)
	}
	return h.ledger.Hold(ctx, holds...)
}
