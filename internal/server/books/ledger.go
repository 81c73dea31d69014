package books

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/f4ee788f/quota/internal/billing"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/policy/policystore"
	"github.com/f4ee788f/quota/internal/server/authn"
	"github.com/f4ee788f/quota/internal/server/rpc"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Versions knows the policy versions that ever were in force: see statements.Service.
type Versions interface {
	Versions(ctx context.Context) ([]billing.Version, error)
}

// Config is what the service is made of. Judge is nil where the ledger accepts all.
type Config struct {
	Books    ledger.Books
	Policy   policystore.Store
	Versions Versions
	Judge    Judge
	Tally    Tally
	Stopping <-chan struct{}
}

// Judge learns what rows name, so that the ledger can judge them: see judge.Judge.
type Judge interface {
	Learn(ctx context.Context, key, agent string, rows []ledger.Row) error
}

// Tally writes what this server granted: see granted.Tally.
type Tally interface {
	Flush(ctx context.Context) error
}

// New returns the service.
func New(c Config) *Service {
	return &Service{books: c.Books, policy: c.Policy, versions: c.Versions, judge: c.Judge, tally: c.Tally, stopping: c.Stopping}
}

// Service is what operators do with the ledger.
type Service struct {
	quotav1.UnimplementedLedgerServiceServer
	books    ledger.Books
	policy   policystore.Store
	versions Versions
	judge    Judge // nil where the ledger accepts all
	tally    Tally
	stopping <-chan struct{}

	long sync.Mutex // held by the one call that reads the whole ledger
}

// Verify checks the ledger against itself.
func (s *Service) Verify(_ *quotav1.VerifyRequest, stream grpc.ServerStreamingServer[quotav1.VerifyResponse]) error {
	var r *quotav1.VerifyResult
	err := s.alone(stream.Context(), func(ctx context.Context) error {
		if err := s.tally.Flush(ctx); err != nil { // what may be missing is told of grants as they are now
			return err
		}
		var sent error
		v, err := s.books.Verify(ctx, nowAndThen(func(p *quotav1.LedgerProgress) {
			if sent == nil {
				sent = stream.Send(&quotav1.VerifyResponse{Progress: p})
			}
		}))
		if err == nil {
			err = sent
		}
		if err != nil {
			return err
		}
		faults, more, err := s.books.VerifyRecords(ctx)
		if err != nil {
			return err
		}
		room := min(len(faults), ledger.MaxFaults-len(v.Faults))
		v.Faults, v.More = append(v.Faults, faults[:room]...), v.More+more+int64(len(faults)-room)
		r = &quotav1.VerifyResult{
			MoreFaults: v.More, Epochs: v.Counts.Epochs, Reports: v.Counts.Reports, Blocks: v.Counts.Blocks, Entries: v.Counts.Entries,
			Rollups: v.Counts.Rollups, Quarantined: v.Counts.Quarantined, Height: v.Height, Hash: v.Hash[:],
			ArchivedReports: v.Archived.Reports, ArchivedBlocks: v.Archived.Blocks, ArchivedRollups: v.Archived.Rollups, ArchivedBeforeMs: 1000 * v.Archived.Before,
			Lost: rpc.Lost(v.Lost), MoreLost: v.Lost.More,
		}
		for _, f := range v.Faults {
			r.Faults = append(r.Faults, &quotav1.LedgerFault{Table: f.Table, Which: f.Which, What: f.What})
		}
		return nil
	})
	if err != nil {
		return err
	}
	// A caller that has the answer may call again, so it is sent only when the next call may run.
	return stream.Send(&quotav1.VerifyResponse{Result: r})
}

// Rebuild makes roll-ups again from entries.
func (s *Service) Rebuild(_ *quotav1.RebuildRequest, stream grpc.ServerStreamingServer[quotav1.RebuildResponse]) error {
	var wrong int64
	err := s.alone(stream.Context(), func(ctx context.Context) error {
		var sent error
		var err error
		wrong, err = s.books.Rebuild(ctx, authn.PrincipalOf(stream.Context()).Name, nowAndThen(func(p *quotav1.LedgerProgress) {
			if sent == nil {
				sent = stream.Send(&quotav1.RebuildResponse{Progress: p})
			}
		}))
		if err == nil {
			err = sent
		}
		return err
	})
	if err != nil {
		return err
	}
	return stream.Send(&quotav1.RebuildResponse{Wrong: wrong, Done: true})
}

// alone runs a call that reads the whole ledger: one at a time, ended when the server stops.
func (s *Service) alone(ctx context.Context, do func(context.Context) error) error {
	if !s.long.TryLock() {
		return fmt.Errorf("%w: this server is verifying or rebuilding already", fault.ErrUnavailable)
	}
	defer s.long.Unlock()
	ctx, cancel := rpc.Until(ctx, s.stopping)
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		select {
		case <-s.stopping:
			return rpc.ErrStopping
		default:
		}
	}
	return rpc.LedgerError(err)
}

// nowAndThen tells progress at most twice a second, and when a stage is done.
func nowAndThen(tell func(*quotav1.LedgerProgress)) func(ledger.Progress) {
	var last time.Time
	return func(p ledger.Progress) {
		if p.Done < p.Total && time.Since(last) < rpc.ProgressEvery {
			return
		}
		last = time.Now()
		tell(&quotav1.LedgerProgress{Stage: p.Stage, Done: p.Done, Total: p.Total})
	}
}
