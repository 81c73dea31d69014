package doors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/listen"
	"github.com/f4ee788f/quota/pkg/client"
)

// EnvoyClient is what Envoy's door asks: a client.Client.
type EnvoyClient interface {
	Decide(ctx context.Context, q client.Request) client.Decision
	AllowTogether(ctx context.Context, requests []client.Request) []client.Decision
	Book(ctx context.Context, requests ...client.Request) error
	Refund(ctx context.Context, requests ...client.Request) (whole bool, err error)
	PolicyVersion() int64
	Gateways() []client.Gateway
}

// maxDescriptors bounds a request's descriptors: each costs a decision, and nothing
// but a mistake sends more.
const maxDescriptors = 256

// mostReported bounds what one descriptor reports after the fact: the units of sixteen requests. A report of streamed
// bytes may reach it.
const mostReported = 16 * limit.MaxUnits

// errAbove says why the rest is lost.
var errAbove = fmt.Errorf("one report is of %d units at most", int64(mostReported))

// Envoy is Envoy's rate limit service. It is safe for concurrent use.
type Envoy struct {
	rls.UnimplementedRateLimitServiceServer

	// OpenAI says that answers have httpquota.OpenAIHeaders, too. It is set before anything is served.
	OpenAI bool

	client  EnvoyClient
	metrics *Metrics
	// mapped is the mapping of the policy version last seen, built again when the version changes. Two requests that
	// build it at once build the same.
	mapped atomic.Pointer[mappedVersion]
	owed   owed
}

type mappedVersion struct {
	version int64
	mapping *mapping
}

// NewEnvoy returns the service. It starts nothing. The caller calls Run, and End once nothing more is served.
func NewEnvoy(c EnvoyClient, m *Metrics, log *slog.Logger) *Envoy {
	return &Envoy{client: c, metrics: m, owed: owed{client: c, metrics: m, log: log}}
}

// Run books the reports that could not be booked at once, until ctx ends.
func (e *Envoy) Run(ctx context.Context) { e.owed.run(ctx) }

// End books what it can of these within a second, and logs what is lost. Nothing is served any more.
func (e *Envoy) End() { e.owed.end() }

// mapping returns the words of the policy in force; nil while none is known.
func (e *Envoy) mapping() *mapping {
	version := e.client.PolicyVersion()
	if version == 0 {
		return nil
	}
	m := e.mapped.Load()
	if m == nil || m.version != version {
		// Where a newer version came in between, the next request maps once more.
		m = &mappedVersion{version, newMapping(e.client.Gateways())}
		e.mapped.Store(m)
	}
	return m.mapping
}

// ShouldRateLimit decides all descriptors as one; each is a request to the limits. Before that it books those that
// report usage after the fact, and gives back those with negative hits. See docs/doors.md for what each field means here. INVALID_ARGUMENT means that a request cannot be
// understood. UNAVAILABLE means that nothing can be decided, so that Envoy's own failure mode applies.
func (e *Envoy) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	w, hits, err := e.read(ctx, r)
	if err != nil {
		return nil, err
	}
	questions := make([]client.Request, len(r.GetDescriptors())) // without attributes they are unlimited
	md, _ := metadata.FromIncomingContext(ctx)
	var reports []client.Request
	var refunds []refund
	tooLarge := false
	for i, d := range r.GetDescriptors() {
		if w == nil {
			continue
		}
		q := w.request(d, hits[i], md)
		switch {
		case q.Attributes == nil:
		case hits[i] < 0:
			refunds = append(refunds, refundOf(q, -hits[i]))
		case !w.reports(d):
			questions[i] = q
			tooLarge = tooLarge || hits[i] > limit.MaxUnits
		default:
			reports = append(reports, e.parts(q, hits[i])...)
		}
	}
	if err := e.book(ctx, reports); err != nil {
		return nil, err
	}
	e.refund(ctx, refunds)
	decide := e.decide
	if tooLarge {
		decide = e.refuseLarge
	}
	decisions := decide(ctx, questions)
	if reason, failed := undecided(decisions); failed {
		e.metrics.count(doorEnvoy, resultUnavailable)
		if len(reports) > 0 {
			return nil, status.Errorf(codes.Unavailable, "not decided: %s; what was used already is booked", reason)
		}
		return nil, status.Errorf(codes.Unavailable, "not decided: %s", reason)
	}
	return e.answer(doorEnvoy, decisions), nil
}

// read checks a call's form, and returns the words of its domain and the hits of its descriptors. No words mean that
// nothing is limited there.
func (e *Envoy) read(ctx context.Context, r *rls.RateLimitRequest) (w *words, hits []int64, err error) {
	if !listen.Known(listen.PeerOf(ctx)) {
		return nil, nil, listen.Refused()
	}
	if r.GetDomain() == "" {
		return nil, nil, status.Error(codes.InvalidArgument, "rate limit domain must not be empty")
	}
	if n := len(r.GetDescriptors()); n == 0 || n > maxDescriptors {
		return nil, nil, status.Errorf(codes.InvalidArgument, "rate limit descriptor list must have 1 to %d entries, got %d", maxDescriptors, n)
	}
	m := e.mapping()
	if m == nil {
		e.metrics.count(doorEnvoy, resultUnavailable)
		e.owed.blind.Add(1)
		return nil, nil, status.Error(codes.Unavailable, "no policy is known: the quota server was never reached")
	}
	return m.of(r.GetDomain()), hitsOf(r), nil
}

// parts is a report of so many hits, as requests that may be booked. What is above mostReported is lost.
func (e *Envoy) parts(q client.Request, hits int64) []client.Request {
	parts, above := partsOf(q, hits)
	if above > 0 {
		e.owed.lost(errAbove, ofHits(q, above))
	}
	return parts
}

// partsOf is so many hits as requests that may be booked or given back, and the hits above mostReported.
func partsOf(q client.Request, hits int64) (parts []client.Request, above int64) {
	above = max(hits-mostReported, 0)
	for hits -= above; hits > limit.MaxUnits; hits -= limit.MaxUnits {
		parts = append(parts, ofHits(q, limit.MaxUnits))
	}
	return append(parts, ofHits(q, hits)), above
}

// refuseLarge denies questions that ask for more than any limit lets through, because after an error Envoy would let
// them pass. They pass where no limit holds them, or a switch is on. Nothing is taken for the other questions.
func (e *Envoy) refuseLarge(ctx context.Context, questions []client.Request) []client.Decision {
	looks := slices.Clone(questions)
	for i := range looks {
		looks[i] = ofHits(looks[i], 0)
	}
	decisions := e.decide(ctx, looks)
	for i, d := range decisions {
		if *hitsIn(&questions[i]) > limit.MaxUnits && d.Allowed && d.Limit() != "" && d.Reason != client.ReasonSwitch {
			decisions[i] = client.Decision{Reason: client.ReasonTooLarge}
		}
	}
	return decisions
}

// book books what descriptors report after the fact, now or when it can be. On an error nothing was taken for any
// descriptor of the call, and the reports are lost. Envoy ignores the answer, so the log and a counter tell of it.
func (e *Envoy) book(ctx context.Context, reports []client.Request) error {
	if len(reports) == 0 {
		return nil
	}
	err := e.client.Book(ctx, reports...)
	switch {
	case err == nil:
		e.metrics.count(doorEnvoy, resultBooked)
		return nil
	case later(err) && e.owed.keep(reports):
		e.metrics.count(doorEnvoy, resultOwed)
		return nil
	}
	e.owed.lost(err, reports...)
	return e.notBooked(err)
}

// notBooked is an error of Book as Envoy has it.
func (e *Envoy) notBooked(err error) error {
	var why *client.NotBookedError
	switch {
	case !errors.As(err, &why):
	case why.Reason == client.ReasonInvalid:
		e.metrics.count(doorEnvoy, resultBadRequest)
		return status.Error(codes.InvalidArgument, err.Error())
	case why.Reason == client.ReasonNoPlan:
		e.metrics.count(doorEnvoy, resultBadRequest)
		return status.Error(codes.FailedPrecondition, "nothing was booked: the tenant is under no plan")
	}
	e.metrics.count(doorEnvoy, resultUnavailable)
	return status.Error(codes.Unavailable, err.Error())
}

// refund is negative hits of a descriptor.
type refund struct {
	parts []client.Request
	cut   bool // there were more
}

// refundOf is so many hits, above 0, as what is to be given back.
func refundOf(q client.Request, hits int64) refund {
	parts, above := partsOf(q, hits)
	return refund{parts, above > 0}
}

// refundsWithin bounds how long a call waits for tenants that are not known yet: nothing was taken for them here.
const refundsWithin = time.Second

// refund gives back what descriptors with negative hits say was not needed, as far as it can be. Each is on its own. One
// that cannot be understood is kept, because after an error Envoy would let the whole call pass.
func (e *Envoy) refund(ctx context.Context, refunds []refund) {
	if len(refunds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refundsWithin)
	defer cancel()
	result := resultRefunded
	for _, r := range refunds {
		if whole, err := e.client.Refund(ctx, r.parts...); !whole || err != nil || r.cut {
			result = resultKept
		}
	}
	e.metrics.count(doorEnvoy, result)
}

// undecided reports whether only a fault of the service kept it from an answer. Then Envoy's own failure mode decides.
// A limit's on_outage is an answer, and so is any denial beside a fault.
func undecided(decisions []client.Decision) (reason client.Reason, failed bool) {
	for _, d := range decisions {
		if d.Allowed {
			continue
		}
		if headers.RowOf(d.Reason.String()).Envoy != headers.EnvoyError {
			return d.Reason, false
		}
		reason, failed = d.Reason, true
	}
	return reason, failed
}

// hitsOf returns the cost of each descriptor, below 0 where it is to be given back. It is its own addend, where 0 only
// checks, or else the request's, where 0 means that none was given.
func hitsOf(r *rls.RateLimitRequest) []int64 {
	all := int64(r.GetHitsAddend())
	if all == 0 {
		all = 1
	}
	hits := make([]int64, len(r.GetDescriptors()))
	for i, d := range r.GetDescriptors() {
		hits[i] = all
		if own := d.GetHitsAddend(); own != nil {
			hits[i] = int64(min(own.GetValue(), math.MaxInt64))
		}
		if d.GetIsNegativeHits() {
			hits[i] = -hits[i]
		}
	}
	return hits
}

// unlimited is the decision on a descriptor that no limit holds.
var unlimited = client.Decision{Allowed: true, Reason: client.ReasonUnlimited}

// decide decides all questions as one. Otherwise units would be billed for a descriptor that is admitted in a request
// that another descriptor denies.
func (e *Envoy) decide(ctx context.Context, questions []client.Request) []client.Decision {
	decisions := make([]client.Decision, len(questions))
	var asked []client.Request
	var places []int
	for i, q := range questions {
		if decisions[i] = unlimited; q.Attributes != nil {
			asked, places = append(asked, q), append(places, i)
		}
	}
	if len(asked) == 1 { // without what it takes to put back
		d := e.client.Decide(ctx, asked[0])
		if d.Allowed || headers.RowOf(d.Reason.String()).Envoy != headers.EnvoyOK { // to Envoy, what no limit holds is free
			decisions[places[0]] = d
		}
		return decisions
	}
	for i, d := range e.client.AllowTogether(ctx, asked) {
		decisions[places[i]] = d
	}
	return decisions
}

// answer is the decisions of a door as Envoy reads them.
func (e *Envoy) answer(door string, decisions []client.Decision) *rls.RateLimitResponse {
	resp := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses:    make([]*rls.RateLimitResponse_DescriptorStatus, len(decisions)),
	}
	shown := 0 // the decision that the headers tell of: the first denial, else the first with a limit
	for i, d := range decisions {
		s := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
		resp.Statuses[i] = s
		if !d.Allowed {
			s.Code = rls.RateLimitResponse_OVER_LIMIT
			if resp.OverallCode == rls.RateLimitResponse_OK {
				resp.OverallCode, shown = rls.RateLimitResponse_OVER_LIMIT, i
			}
		} else if resp.OverallCode == rls.RateLimitResponse_OK && decisions[shown].Limit() == "" && d.Limit() != "" {
			shown = i
		}
		t := d.Details()
		if t.Limit == "" {
			if d.Allowed {
				s.LimitRemaining = math.MaxUint32
			}
			continue
		}
		s.CurrentLimit = currentLimit(&t)
		if d.Allowed {
			s.LimitRemaining = uint32(min(headers.Remaining(t.Quota, t.Remaining), math.MaxUint32))
		}
		switch {
		case !d.Allowed && !headers.RowOf(d.Reason.String()).Waits:
		case !d.Allowed && d.RetryAfter > 0:
			s.DurationUntilReset = durationpb.New(d.RetryAfter) // the bucket may be full much later
		default:
			s.DurationUntilReset = durationpb.New(t.Reset)
		}
	}
	resp.ResponseHeadersToAdd = headersOf(decisions[shown], e.OpenAI)
	result := resultOK
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		result = resultOverLimit
	}
	e.metrics.count(door, result)
	return resp
}

// currentLimit is the limit in Envoy's units. It has no rate where Envoy has no unit for it, because a wrong unit is
// worse than none.
func currentLimit(t *client.Details) *rls.RateLimitResponse_RateLimit {
	l := &rls.RateLimitResponse_RateLimit{Name: t.Limit}
	if t.Quota > math.MaxUint32 {
		return l
	}
	u, times := unitOf(t.Window), int64(1)
	if u == rls.RateLimitResponse_RateLimit_UNKNOWN {
		u, times = multipleOf(t.Window)
	}
	if u != rls.RateLimitResponse_RateLimit_UNKNOWN {
		l.Unit, l.RequestsPerUnit = u, uint32(t.Quota)
	}
	if times > 1 {
		l.UnitMultiplier = wrapperspb.UInt32(uint32(times))
	}
	return l
}

// unitOf is Envoy's word for a window. Calendar months and years are recognized by their possible lengths, including a
// change of daylight saving time.
func unitOf(window time.Duration) rls.RateLimitResponse_RateLimit_Unit {
	const day = 24 * time.Hour
	switch {
	case window == time.Second:
		return rls.RateLimitResponse_RateLimit_SECOND
	case window == time.Minute:
		return rls.RateLimitResponse_RateLimit_MINUTE
	case window == time.Hour:
		return rls.RateLimitResponse_RateLimit_HOUR
	case window >= day-time.Hour && window <= day+time.Hour:
		return rls.RateLimitResponse_RateLimit_DAY
	case window >= 7*day-time.Hour && window <= 7*day+time.Hour:
		return rls.RateLimitResponse_RateLimit_WEEK
	case window >= 28*day-time.Hour && window <= 31*day+time.Hour:
		return rls.RateLimitResponse_RateLimit_MONTH
	case window >= 365*day-time.Hour && window <= 366*day+time.Hour:
		return rls.RateLimitResponse_RateLimit_YEAR
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN
}

// multipleOf is the largest of Envoy's units that a window is a multiple of, and how many it is.
func multipleOf(window time.Duration) (rls.RateLimitResponse_RateLimit_Unit, int64) {
	for _, u := range []struct {
		unit rls.RateLimitResponse_RateLimit_Unit
		of   time.Duration
	}{
		{rls.RateLimitResponse_RateLimit_HOUR, time.Hour},
		{rls.RateLimitResponse_RateLimit_MINUTE, time.Minute},
		{rls.RateLimitResponse_RateLimit_SECOND, time.Second},
	} {
		if n := int64(window / u.of); window > 0 && window%u.of == 0 && n <= math.MaxUint32 {
			return u.unit, n
		}
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN, 1
}

var _ rls.RateLimitServiceServer = (*Envoy)(nil)
