package session

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

	"github.com/f4ee788f/quota/internal/core/agent"
	"github.com/f4ee788f/quota/internal/core/fault"
	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/wire"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// A ledger that went back — restored from a backup, or failed over to a standby that had not everything — has forgotten
// reports that it acknowledged. A journal keeps them, and again sends those that are missing: the same bytes under
// the same numbers, which the ledger takes once, whoever sends them and however often.
type again struct {
	dir   *journal.Dir
	agent string // whose reports count; empty for anybody's
	api   quotav1.LeaseServiceClient
	log   *slog.Logger
	// enough is closed when it is no longer worth while to ask how far epochs are settled; nil for never.
	enough <-chan struct{}
}

const (
	// againEvery is how soon the journal is gone through again at most because the ledger has another
	// name: it takes some seconds for each gigabyte.
	againEvery = time.Minute
	// askPatience is how long a ledger that takes reports, and cannot be asked how far it is, keeps what waits from being
	// settled: then what it has forgotten is given up.
	askPatience = 3 * time.Minute
	// againTries bounds how often it is begun anew because logs were put elsewhere meanwhile.
	againTries = 10
)

// reached is how far an epoch was acknowledged, or is settled.
type reached struct{ seq, total int64 }

// resent is what came of a look.
type resent struct {
	ledger    string // that has now what can be had
	reports   int64  // sent again and settled
	units     int64
	lacking   map[ledger.Epoch]int64 // what the ledger waits for and the journal does not have
	forgotten forgotten
	asked     bool // how far epochs are settled was answered
}

// forgotten is how many units of epochs were acknowledged, are not in the ledger, and cannot be sent again: the most that
// was ever found of each, for a journal that is pruned knows of fewer and fewer.
type forgotten map[ledger.Epoch]int64

func (f *forgotten) add(e ledger.Epoch, units int64) {
	if *f == nil {
		*f = make(forgotten)
	}
	(*f)[e] = max((*f)[e], units)
}

func (f *forgotten) merge(other forgotten) {
	for e, units := range other {
		f.add(e, units)
	}
}

func (f forgotten) units() (sum int64) {
	for _, n := range f {
		sum += n
	}
	return sum
}

// run asks how far the epochs of all logs are settled, and sends what is missing until it is settled, which
// may take as long as the ledger is away, or until ctx ends. known is how far epochs were acknowledged
// beyond what the logs say.
func (a *again) run(ctx context.Context, known map[ledger.Epoch]reached) (r resent, err error) {
	for range againTries {
		var before []journal.Kept
		before, err = a.kept()
		if err != nil {
			return r, err
		}
		r.lacking, r.forgotten = nil, nil
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
	return r, fmt.Errorf("the logs of %s were put elsewhere %d times while they were read", a.dir.Path(), againTries)
}

// kept returns the logs that count.
func (a *again) kept() ([]journal.Kept, error) {
	logs, err := a.dir.Kept()
	if err != nil {
		if len(logs) == 0 {
			return nil, err
		}
		a.log.Error("a log of the journal cannot be read: what it has cannot be sent again", "error", err)
	}
	return slices.DeleteFunc(logs, func(k journal.Kept) bool { return a.agent != "" && k.Agent != a.agent }), nil
}

func (a *again) look(ctx context.Context, logs []journal.Kept, known map[ledger.Epoch]reached, r *resent) error {
	said := maps.Clone(known) // how far epochs were acknowledged
	if said == nil {
		said = make(map[ledger.Epoch]reached)
	}
	through := func(e ledger.Epoch, seq, total int64) {
		if seq > said[e].seq {
			said[e] = reached{seq, total}
		}
	}
	for _, k := range logs {
		a.read(ctx, k, func(p ledger.Report) { through(ledger.Epoch{Agent: p.Agent, Epoch: p.Epoch}, p.Seq, p.After) }, through)
	}
	behind, err := a.behind(ctx, said, r)
	if err != nil || len(behind) == 0 {
		return err
	}
	a.log.Warn("the ledger has forgotten reports that it acknowledged; sending them again", "epochs", len(behind), "ledger", r.ledger)
	s := sending{again: a, behind: behind}
	for _, k := range logs {
		a.read(ctx, k, func(p ledger.Report) { s.add(ctx, p) }, nil)
	}
	s.flush(ctx)
	r.reports, r.units = r.reports+s.reports, r.units+s.units
	if s.err != nil {
		return s.err
	}
	for e, f := range behind {
		if want := said[e]; f.Seq < want.seq {
			if r.lacking == nil {
				r.lacking = make(map[ledger.Epoch]int64)
			}
			r.lacking[e] = f.Seq + 1
			r.forgotten.add(e, want.total-f.Total)
			a.log.Error("the ledger has forgotten reports that the journal cannot send again",
				"agent", e.Agent, "epoch", e.Epoch, "from", f.Seq+1, "through", want.seq, "units", want.total-f.Total, "why", cmp.Or(s.why[e], "the journal no longer has them"))
		}
	}
	a.log.Info("what the ledger had forgotten is settled again", "reports", s.reports, "units", s.units, "forgotten_units", r.forgotten.units())
	return nil
}

// read goes through the acknowledged reports of a log, and how far those before it went (agent.NewHistory).
func (a *again) read(ctx context.Context, k journal.Kept, report func(ledger.Report), through func(e ledger.Epoch, seq, total int64)) {
	h := agent.NewHistory(k.Agent, k.Epoch, report, through)
	err := a.dir.Read(k, func(body []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return h.Record(body)
	})
	if err != nil && ctx.Err() == nil { // where it was put elsewhere, all is read once more
		a.log.Warn("a log of the journal cannot be read to its end: what comes after cannot be sent again", "error", err)
	}
}

// behind asks how far the epochs are settled, and returns those that are less far than was said. All are asked of one ledger:
// where it becomes another meanwhile, all are asked anew.
func (a *again) behind(ctx context.Context, said map[ledger.Epoch]reached, r *resent) (map[ledger.Epoch]*ledger.Frontier, error) {
	for range againTries {
		behind, name, one, err := a.ask(ctx, said)
		if err != nil {
			return nil, err
		}
		if one {
			r.ledger, r.asked = name, true
			return behind, nil
		}
	}
	return nil, fmt.Errorf("the ledger had another name %d times while it was asked how far epochs are settled", againTries)
}

func (a *again) ask(ctx context.Context, said map[ledger.Epoch]reached) (behind map[ledger.Epoch]*ledger.Frontier, name string, one bool, err error) {
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
		resp, err := patiently(ctx, a.enough, func(ctx context.Context) (*quotav1.FrontiersResponse, error) {
			resp, err := a.api.Frontiers(ctx, req)
			if err == nil {
				err = wire.CheckFrontiersResponse(req, resp)
			}
			return resp, err
		})
		if a.agent == "" && status.Code(err) == codes.PermissionDenied {
			a.log.Warn("whether the ledger has forgotten reports of an agent cannot be asked: the key does not speak for it", "agent", req.Agent)
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
			if f := wire.FrontierFromProto(req.Agent, p); f.Seq < said[f.Epoch].seq {
				behind[f.Epoch] = &f
			}
		}
	}
	return behind, name, true, nil
}

// sending sends reports, as they come, of epochs that are behind.
type sending struct {
	*again
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
	at := reached{f.Seq, f.Total} // with what is in the batch
	for i := range s.batch {
		if q := &s.batch[i]; q.Agent == e.Agent && q.Epoch == e.Epoch {
			at = reached{q.Seq, q.After}
		}
	}
	switch {
	case p.Seq == f.Seq && p.Digest != f.Digest:
		s.stop(e, "the ledger has another report under the same number")
		return
	case p.Seq <= at.seq:
		return
	case p.Seq > at.seq+1:
		s.stop(e, "the journal no longer has those before")
		return
	case p.Before != at.total:
		s.stop(e, "they do not go on where the ledger is")
		return
	}
	if len(s.batch) == maxSend || len(s.batch) > 0 && s.bytes+len(p.Payload) > maxSendBytes {
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
			receipts, _, err := settle(ctx, s.api, s.batch, nil)
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
		once, cancel := context.WithTimeout(ctx, settleTimeout)
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
		case <-time.After(retryIn(fails, 50*time.Millisecond, settleRetry)):
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

// looking is what a client knows of its journal's reports in the ledger.
type looking struct {
	under   bool                   // a look is under way
	at      time.Time              // when the next may begin for a name's sake
	why     *forgot                // what waits for a look: the latest that was found; nil for nothing
	whyAt   time.Time              // when the next look may begin because something waits
	since   time.Time              // when something began to wait for the look that is under way, while reports are answered
	enough  chan struct{}          // closed when that is too long; nil once it is
	ledger  string                 // that has what can be had
	lacking map[ledger.Epoch]int64 // of resent, as the last look found it

	reports, units int64 // sent again and settled
	forgotten      forgotten
}

// forgot is an epoch of which the ledger waits for what it had acknowledged.
type forgot struct {
	epoch ledger.Epoch
	reached
	next  int64 // that it waits for
	units int64 // from there to what was reached
}

type lookResult struct {
	resent
	err error
}

// recall takes the receipts by which the ledger has forgotten what it acknowledged out of an answer, while the
// journal may have it: what waits goes on waiting, and is sent once what comes before is settled again.
func (l *Loop) recall(r *settleResult) {
	at, next, ok := r.from.Forgotten(r.sent, r.receipts)
	if !ok {
		return
	}
	head := &r.sent[at]
	f := forgot{ledger.Epoch{Agent: head.Agent, Epoch: head.Epoch}, reached{head.Seq - 1, head.Before}, next, head.Before - r.receipts[at].Total}
	if l.s.keeper == nil {
		l.looking.forgotten.add(f.epoch, f.units)
		return
	}
	if l.looking.lacking[f.epoch] == next {
		return
	}
	r.receipts = r.receipts[:at]
	k, now := &l.looking, time.Now()
	switch {
	case !k.under && now.Before(k.whyAt):
	case !k.under:
		k.why = &f
		l.look()
	case k.since.IsZero():
		k.why, k.since = &f, now
	default:
		k.why = &f
		if now.Sub(k.since) >= askPatience && k.enough != nil {
			close(k.enough)
			k.enough = nil
		}
	}
}

// named takes the ledger's name out of an answer: under another one it may have forgotten what no report to come
// would find out, of lives and epochs that have ended.
func (l *Loop) named(name string) {
	if l.s.keeper != nil && name != "" && name != l.looking.ledger && !time.Now().Before(l.looking.at) {
		l.look()
	}
}

// look has the journal gone through, beside the loop.
func (l *Loop) look() {
	k := &l.looking
	if k.under {
		return
	}
	k.under, k.since, k.enough = true, time.Time{}, make(chan struct{})
	known := make(map[ledger.Epoch]reached)
	if k.why != nil {
		known[k.why.epoch] = k.why.reached
	}
	a := again{dir: l.s.keeper.dir, agent: l.s.cfg.Agent, api: l.s.api, log: l.s.log, enough: k.enough}
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		r, err := a.run(l.ctx, known)
		l.looked <- lookResult{r, err}
	}()
}

func (l *Loop) onLooked(r lookResult) {
	k := &l.looking
	why, next := k.why, time.Now().Add(jitter(againEvery, 0.1))
	k.under, k.why, k.at = false, nil, next
	if why != nil {
		k.whyAt = next
	}
	k.reports, k.units = k.reports+r.reports, k.units+r.units
	if r.err != nil {
		if l.ctx.Err() != nil {
			return
		}
		l.s.log.Error("what the ledger may have forgotten cannot be sent again", "error", r.err)
		if why != nil { // it must not wait for ever
			k.forgotten.add(why.epoch, why.units)
			k.lacking = map[ledger.Epoch]int64{why.epoch: why.next}
		}
	} else {
		k.ledger, k.lacking = r.ledger, r.lacking
		k.forgotten.merge(r.forgotten)
	}
	l.settleFails, l.settleAt = 0, time.Time{} // what waited behind it
}
