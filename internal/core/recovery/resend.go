package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/retry"
	"github.com/f4ee788f/quota/internal/core/usage"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// Resender sends again what a ledger that went back has forgotten. Such a ledger was restored from a backup, or
// failed over to a standby that lacked some of it. A journal keeps acknowledged reports. Those missing from the
// ledger are sent as the same bytes under the same numbers. The ledger takes them once, however often and from
// however many they come.
type Resender struct {
	Dir   *journal.Dir
	Agent string // whose reports count; empty for anybody's
	API   quotav1.LeaseServiceClient
	Log   *slog.Logger
	// Enough is closed when it is no longer worth while to ask how far epochs are settled; nil for never.
	Enough <-chan struct{}
}

// resendTries bounds how often it is begun anew because logs were put elsewhere meanwhile.
const resendTries = 10

// Reached is how far an epoch was acknowledged, or is settled.
type Reached struct{ Seq, Total int64 }

// Resent is what came of a look.
type Resent struct {
	Ledger    string // that has now what can be had
	Reports   int64  // sent again and settled
	Units     int64
	Lacking   map[ledger.Epoch]int64 // what the ledger waits for and the journal does not have
	Forgotten Forgotten
	Asked     bool // how far epochs are settled was answered
}

// Forgotten is how many units of epochs were acknowledged, are not in the ledger, and cannot be sent again. It
// is the most ever found of each, for a journal that is pruned knows of fewer and fewer.
type Forgotten map[ledger.Epoch]int64

// Add notes units of an epoch.
func (f *Forgotten) Add(e ledger.Epoch, units int64) {
	if *f == nil {
		*f = make(Forgotten)
	}
	(*f)[e] = max((*f)[e], units)
}

// Merge notes what another has.
func (f *Forgotten) Merge(other Forgotten) {
	for e, units := range other {
		f.Add(e, units)
	}
}

// Units is the sum over all epochs.
func (f Forgotten) Units() (sum int64) {
	for _, n := range f {
		sum += n
	}
	return sum
}

// Run asks how far the epochs of all logs are settled, and sends what is missing until it is settled. That may
// take as long as the ledger is away, or until ctx ends. known is how far epochs were acknowledged beyond what
// the logs say.
func (a *Resender) Run(ctx context.Context, known map[ledger.Epoch]Reached) (r Resent, err error) {
	for range resendTries {
		var before []journal.Kept
		before, err = a.kept()
		if err != nil {
			return r, err
		}
		r.Lacking, r.Forgotten = nil, nil
		if err := a.look(ctx, before, known, &r); err != nil {
			return r, err
		}
		after, err := a.kept()
		if err != nil {
			return r, err
		}
		if slices.Equal(before, after) {
			return r, nil
		}
	}
	return r, fmt.Errorf("the logs of %s were put elsewhere %d times while they were read", a.Dir.Path(), resendTries)
}

// kept returns the logs that count.
func (a *Resender) kept() ([]journal.Kept, error) {
	logs, err := a.Dir.Kept()
	if err != nil {
		if len(logs) == 0 {
			return nil, err
		}
		a.Log.Error("a log of the journal cannot be read: what it has cannot be sent again", "error", err)
	}
	return slices.DeleteFunc(logs, func(k journal.Kept) bool { return a.Agent != "" && k.Agent != a.Agent }), nil
}

func (a *Resender) look(ctx context.Context, logs []journal.Kept, known map[ledger.Epoch]Reached, r *Resent) error {
	said := maps.Clone(known) // how far epochs were acknowledged
	if said == nil {
		said = make(map[ledger.Epoch]Reached)
	}
	through := func(e ledger.Epoch, seq, total int64) {
		if seq > said[e].Seq {
			said[e] = Reached{seq, total}
		}
	}
	for _, k := range logs {
		a.read(ctx, k, func(p ledger.Report) { through(ledger.Epoch{Agent: p.Agent, Epoch: p.Epoch}, p.Seq, p.After) }, through)
	}
	behind, err := a.behind(ctx, said, r)
	if err != nil || len(behind) == 0 {
		return err
	}
	a.Log.Warn("the ledger has forgotten reports that it acknowledged; sending them again", "epochs", len(behind), "ledger", r.Ledger)
	s := sending{Resender: a, behind: behind}
	for _, k := range logs {
		a.read(ctx, k, func(p ledger.Report) { s.add(ctx, p) }, nil)
	}
	s.flush(ctx)
	r.Reports, r.Units = r.Reports+s.reports, r.Units+s.units
	if s.err != nil {
		return s.err
	}
	for e, f := range behind {
		if want := said[e]; f.Seq < want.Seq {
			if r.Lacking == nil {
				r.Lacking = make(map[ledger.Epoch]int64)
			}
			r.Lacking[e] = f.Seq + 1
			r.Forgotten.Add(e, want.Total-f.Total)
			a.Log.Error("the ledger has forgotten reports that the journal cannot send again",
				"agent", e.Agent, "epoch", e.Epoch, "from", f.Seq+1, "through", want.Seq, "units", want.Total-f.Total, "why", cmp.Or(s.why[e], "the journal no longer has them"))
		}
	}
	a.Log.Info("what the ledger had forgotten is settled again", "reports", s.reports, "units", s.units, "forgotten_units", r.Forgotten.Units())
	return nil
}

// read goes through the acknowledged reports of a log, and how far those before it went (usage.NewHistory).
func (a *Resender) read(ctx context.Context, k journal.Kept, report func(ledger.Report), through func(e ledger.Epoch, seq, total int64)) {
	h := usage.NewHistory(k.Agent, k.Epoch, report, through)
	err := a.Dir.Read(k, func(body []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return h.Record(body)
	})
	if err != nil && ctx.Err() == nil { // where it was put elsewhere, all is read once more
		a.Log.Warn("a log of the journal cannot be read to its end: what comes after cannot be sent again", "error", err)
	}
}

// behind asks how far the epochs are settled, and returns those settled less far than was said. All are asked
// of one ledger: if it becomes another meanwhile, all are asked anew.
func (a *Resender) behind(ctx context.Context, said map[ledger.Epoch]Reached, r *Resent) (map[ledger.Epoch]*ledger.Frontier, error) {
	for range resendTries {
		behind, name, one, err := a.ask(ctx, said)
		if err != nil {
			return nil, err
		}
		if one {
			r.Ledger, r.Asked = name, true
			return behind, nil
		}
	}
	return nil, fmt.Errorf("the ledger had another name %d times while it was asked how far epochs are settled", resendTries)
}

func (a *Resender) ask(ctx context.Context, said map[ledger.Epoch]Reached) (behind map[ledger.Epoch]*ledger.Frontier, name string, one bool, err error) {
	behind = make(map[ledger.Epoch]*ledger.Frontier)
	first := true
	epochs := slices.SortedFunc(maps.Keys(said), func(x, y ledger.Epoch) int {
		return cmp.Or(cmp.Compare(x.Agent, y.Agent), cmp.Compare(x.Epoch, y.Epoch))
	})
	for len(epochs) > 0 {
		req := &quotav1.FrontiersRequest{Agent: epochs[0].Agent}
		for len(epochs) > 0 && epochs[0].Agent == req.Agent && len(req.Epochs) < wire.MaxEpochs {
			req.Epochs = append(req.Epochs, epochs[0].Epoch)
			epochs = epochs[1:]
		}
		resp, err := patiently(ctx, a.Enough, func(ctx context.Context) (*quotav1.FrontiersResponse, error) {
			resp, err := a.API.Frontiers(ctx, req)
			if err == nil {
				err = wire.CheckFrontiersResponse(req, resp)
			}
			return resp, err
		})
		if a.Agent == "" && status.Code(err) == codes.PermissionDenied {
			a.Log.Warn("whether the ledger has forgotten reports of an agent cannot be asked: the key does not speak for it", "agent", req.Agent)
			epochs = slices.DeleteFunc(epochs, func(e ledger.Epoch) bool { return e.Agent == req.Agent })
			continue
		}
		if err != nil {
			return nil, "", false, err
		}
		if !first && resp.Ledger != name {
			return nil, "", false, nil
		}
		first, name = false, resp.Ledger
		for _, p := range resp.Frontiers {
			if f := wire.FrontierFromProto(req.Agent, p); f.Seq < said[f.Epoch].Seq {
				behind[f.Epoch] = &f
			}
		}
	}
	return behind, name, true, nil
}

// sending sends reports, as they come, of epochs that are behind.
type sending struct {
	*Resender
	behind map[ledger.Epoch]*ledger.Frontier // how far they are settled
	why    map[ledger.Epoch]string           // nothing more is sent of them
	batch  []ledger.Report
	bytes  int

	reports, units int64
	err            error
}

// add takes the next report of an epoch that was acknowledged.
func (s *sending) add(ctx context.Context, p ledger.Report) {
	e := ledger.Epoch{Agent: p.Agent, Epoch: p.Epoch}
	f := s.behind[e]
	if f == nil || s.err != nil || s.why[e] != "" || p.Seq < f.Seq {
		return
	}
	at := Reached{f.Seq, f.Total} // with what is in the batch
	for i := range s.batch {
		if q := &s.batch[i]; q.Agent == e.Agent && q.Epoch == e.Epoch {
			at = Reached{q.Seq, q.After}
		}
	}
	switch {
	case p.Seq == f.Seq && p.Digest != f.Digest:
		s.stop(e, "the ledger has another report under the same number")
		return
	case p.Seq <= at.Seq:
		return
	case p.Seq > at.Seq+1:
		s.stop(e, "the journal no longer has those before")
		return
	case p.Before != at.Total:
		s.stop(e, "they do not go on where the ledger is")
		return
	}
	if len(s.batch) == MaxSend || len(s.batch) > 0 && s.bytes+len(p.Payload) > MaxSendBytes {
		s.flush(ctx)
		s.add(ctx, p)
		return
	}
	s.batch = append(s.batch, p)
	s.bytes += len(p.Payload)
}

func (s *sending) stop(e ledger.Epoch, why string) {
	if s.why == nil {
		s.why = make(map[ledger.Epoch]string)
	}
	s.why[e] = cmp.Or(s.why[e], why)
}

// flush sends what is in the batch until each report is settled, or its epoch takes no more.
func (s *sending) flush(ctx context.Context) {
	for len(s.batch) > 0 && s.err == nil {
		receipts, err := patiently(ctx, nil, func(ctx context.Context) ([]ledger.Receipt, error) {
			receipts, _, err := Settle(ctx, s.API, s.batch, nil)
			if err != nil {
				return nil, err
			}
			var later error // of reports that were not stored; those behind are ahead then
			for _, r := range receipts {
				switch r.Status {
				case ledger.Unavailable:
					later = fmt.Errorf("%w: %s", fault.ErrUnavailable, r.Message)
				case ledger.Ahead:
				default:
					return receipts, nil
				}
			}
			return receipts, later
		})
		if err != nil {
			s.err = err
			return
		}
		left := s.batch[:0]
		for i, p := range s.batch {
			e := ledger.Epoch{Agent: p.Agent, Epoch: p.Epoch}
			f := s.behind[e]
			switch r := receipts[i]; r.Status {
			case ledger.Settled, ledger.Already: // the latter where the answer before was lost
				s.reports, s.units = s.reports+1, s.units+p.After-p.Before
				f.Seq, f.Total, f.Digest = p.Seq, p.After, p.Digest
			case ledger.Unavailable:
				left = append(left, p)
			case ledger.Ahead:
				if r.NextSeq == f.Seq+1 && s.why[e] == "" && p.Seq > r.NextSeq { // one before it was not stored
					left = append(left, p)
					break
				}
				s.stop(e, "the ledger went back once more")
			default:
				s.stop(e, r.Message)
			}
		}
		clear(s.batch[len(left):])
		s.batch = left
	}
	s.batch, s.bytes = s.batch[:0], 0
}

// patiently makes a call until it is answered, or refused for good, or it is enough, or ctx ends.
func patiently[A any](ctx context.Context, enough <-chan struct{}, call func(context.Context) (A, error)) (A, error) {
	for fails := 1; ; fails++ {
		once, cancel := context.WithTimeout(ctx, SettleTimeout)
		answer, err := call(once)
		cancel()
		if err == nil || !passing(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, errors.Join(err, context.Cause(ctx))
		case <-enough:
			return answer, fmt.Errorf("it goes on failing, while reports are answered: %w", err)
		case <-time.After(retry.In(fails, 50*time.Millisecond, SettleRetry)):
		}
	}
}

// passing reports whether a call that failed may be answered yet.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.PermissionDenied, codes.InvalidArgument:
		return false
	}
	return true
}
