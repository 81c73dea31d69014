package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrUnavailable means that the engine cannot answer now. Nothing that was not
	// acknowledged is known to be stored; everything may be sent again.
	ErrUnavailable = errors.New("ledger: unavailable")
	// ErrUnchecked means that it is not known now whether a row may become an entry.
	ErrUnchecked = fmt.Errorf("%w: what its rows name could not be checked", ErrUnavailable)
	// ErrClosed means that the store was closed. It wraps ErrUnavailable: another
	// server may answer.
	ErrClosed = fmt.Errorf("%w: closed", ErrUnavailable)
)

// Bounds of the reports that wait for intake. Beyond them a call is refused at once with ErrUnavailable. Its
// agents back off, and their reports wait with them.
const (
	maxWaiting      = 8_192     // reports
	maxWaitingBytes = 128 << 20 // of payloads
	maxBatch        = 512       // reports of one transaction, where calls are joined
	maxBatchBytes   = 16 << 20
)

// commitTimeout ends a transaction that the engine neither finishes nor refuses.
const commitTimeout = 30 * time.Second

// Settler joins concurrent calls of Settle into one transaction each: group commit. Engines embed one in front
// of their intake. Joining does not change a call's outcome. If a joined transaction fails for its content,
// each call is tried on its own, then each report.
type Settler struct {
	commit func(context.Context, []Report) ([]Receipt, error)

	mu      sync.Mutex
	waiting []*call
	reports int // of waiting calls
	bytes   int
	free    int // transactions that may be begun
	closed  bool
	running sync.WaitGroup
}

type call struct {
	reports  []Report
	bytes    int
	receipts []Receipt
	err      error
	done     chan struct{}
}

// NewSettler returns a settler that runs at most width transactions at once.
// commit stores reports and answers each, in one transaction; where the engine
// cannot answer, its error wraps ErrUnavailable.
func NewSettler(width int, commit func(context.Context, []Report) ([]Receipt, error)) *Settler {
	return &Settler{commit: commit, free: max(width, 1)}
}

// Settle is Store.Settle. When ctx ends first, the reports may still be stored.
func (s *Settler) Settle(ctx context.Context, reports []Report) ([]Receipt, error) {
	if len(reports) == 0 {
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c := &call{reports: reports, done: make(chan struct{})}
	for i := range reports {
		c.bytes += len(reports[i].Payload)
	}
	if err := s.enqueue(c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.receipts, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

func (s *Settler) enqueue(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case len(s.waiting) > 0 && (s.reports+len(c.reports) > maxWaiting || s.bytes+c.bytes > maxWaitingBytes):
		return fmt.Errorf("%w: %d reports wait for the engine", ErrUnavailable, s.reports)
	}
	s.waiting = append(s.waiting, c)
	s.reports += len(c.reports)
	s.bytes += c.bytes
	if s.free > 0 {
		s.free--
		s.running.Add(1)
		go s.drain()
	}
	return nil
}

// Close refuses further calls and waits for those under way.
func (s *Settler) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// drain commits what waits until nothing does.
func (s *Settler) drain() {
	defer s.running.Done()
	for {
		batch := s.take()
		if batch == nil {
			return
		}
		s.settle(batch)
		for _, c := range batch {
			close(c.done)
		}
	}
}

// take removes the calls of the next transaction, or gives the turn back.
func (s *Settler) take() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, reports, bytes := 0, 0, 0
	for _, c := range s.waiting {
		if n > 0 && (reports+len(c.reports) > maxBatch || bytes+c.bytes > maxBatchBytes) {
			break
		}
		n++
		reports += len(c.reports)
		bytes += c.bytes
	}
	if n == 0 {
		s.free++
		return nil
	}
	batch := make([]*call, n)
	copy(batch, s.waiting)
	rest := copy(s.waiting, s.waiting[n:])
	clear(s.waiting[rest:])
	s.waiting = s.waiting[:rest]
	s.reports -= reports
	s.bytes -= bytes
	return batch
}

func (s *Settler) settle(batch []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	if len(batch) == 1 {
		batch[0].receipts, batch[0].err = s.apart(ctx, batch[0].reports)
		return
	}
	var all []Report
	for _, c := range batch {
		all = append(all, c.reports...)
	}
	receipts, err := s.commit(ctx, all)
	for _, c := range batch {
		switch {
		case err == nil:
			c.receipts, receipts = receipts[:len(c.reports):len(c.reports)], receipts[len(c.reports):]
		case errors.Is(err, ErrUnavailable):
			c.err = err
		default:
			c.receipts, c.err = s.apart(ctx, c.reports)
		}
	}
}

// apart commits reports together, or one by one if together they fail for their content.
func (s *Settler) apart(ctx context.Context, reports []Report) ([]Receipt, error) {
	receipts, err := s.commit(ctx, reports)
	if err == nil || errors.Is(err, ErrUnavailable) || len(reports) == 1 {
		return receipts, err
	}
	receipts = make([]Receipt, len(reports))
	for i := range reports {
		one, err := s.commit(ctx, reports[i:i+1])
		switch {
		case err == nil:
			receipts[i] = one[0]
		case errors.Is(err, ErrUnavailable):
			return nil, err
		default:
			receipts[i] = Receipt{Status: Unavailable, Message: err.Error()}
		}
	}
	return receipts, nil
}
