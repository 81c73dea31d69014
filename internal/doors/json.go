package doors

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxBody bounds a call's body.
	maxBody = 256 << 10
	// firstRead is how much of a body is read without a place in the door's memory.
	firstRead = 4 << 10
	// maxHeld bounds what all calls hold beyond that: bodies, what was read of them, and answers. At it a call is
	// answered 503 before anything is decided. So callers that send or read slowly hold no more.
	maxHeld = 64 << 20
	// perByte is how many bytes a body's byte is once it was read, at most.
	perByte = 4
)

//go:embed openapi.json
var openAPI []byte

// JSONConfig says how the JSON door answers.
type JSONConfig struct {
	Unknown int // the status of tenants that are not known; 0: 403
}

// JSON is the door of callers in any language: JSON over HTTP, as /openapi.json describes it. It is an http.Handler of
// the paths of JSONRoutes, safe for concurrent use.
type JSON struct {
	client       Decider
	reservations *Reservations
	config       JSONConfig
	metrics      *Metrics
	kept         *kept
	held         atomic.Int64 // bytes
}

// Decider is what the JSON door asks: a client.Client.
type Decider interface {
	Decide(ctx context.Context, q client.Request) client.Decision
}

// NewJSON returns the handler. It starts nothing.
func NewJSON(c Decider, r *Reservations, config JSONConfig, m *Metrics) *JSON {
	return &JSON{client: c, reservations: r, config: config, metrics: m, kept: newKept()}
}

// route answers one call, whose body was read. The text that it returns is kept where the call had a key, as of the
// tenant.
type route func(j *JSON, c *call) (text []byte, err error)

// routes are what JSON serves, by path. All are called with POST.
var routes = map[string]route{
	"/v1/decide":  (*JSON).decide,
	"/v1/reserve": (*JSON).reserve,
	"/v1/extend":  (*JSON).extend,
	"/v1/commit":  (*JSON).commit,
	"/v1/cancel":  (*JSON).cancel,
}

// keyed are the paths where a call counts once under an Idempotency-Key. Elsewhere the reservation's id is enough.
var keyed = map[string]bool{"/v1/decide": true, "/v1/reserve": true}

const openAPIPath = "/openapi.json"

// JSONRoutes returns the paths that JSON serves.
func JSONRoutes() []string {
	paths := []string{openAPIPath}
	for path := range routes {
		paths = append(paths, path)
	}
	return paths
}

// call is one call under way.
type call struct {
	ctx    context.Context
	body   string
	tenant string // whose answer it is; empty for nobody's
	held   int64  // of the door's memory
}

// ServeHTTP answers one call.
func (j *JSON) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path == openAPIPath {
		j.describe(w, r)
		return
	}
	answers := routes[path]
	if answers == nil {
		(&problem{status: http.StatusNotFound, detail: "there is no such path; /openapi.json lists them"}).write(w)
		return
	}
	c := &call{ctx: r.Context()}
	defer j.release(c)
	text, again, err := j.answer(w, r, path, answers, c)
	if err != nil {
		p := problemOf(err)
		j.metrics.called(path, callResult(p.status))
		p.write(w)
		return
	}
	result := resultOK
	if again {
		result = resultReplayed
	}
	j.metrics.called(path, result)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the caller has gone away; nobody is left to be told
}

// answer answers one call, or finds the answer that its key had before.
func (j *JSON) answer(w http.ResponseWriter, r *http.Request, path string, answers route, c *call) (text []byte, again bool, err error) {
	if err := j.read(w, r, c); err != nil {
		return nil, false, err
	}
	keys := r.Header["Idempotency-Key"]
	if len(keys) == 0 || !keyed[path] {
		text, err = answers(j, c)
		return text, false, err
	}
	if len(keys) > 1 || !validKey(keys[0]) {
		return nil, false, &problem{status: http.StatusBadRequest, detail: fmt.Sprintf("Idempotency-Key: write one, of 1 to %d visible ASCII characters", maxKeyLen)}
	}
	text, was, p := j.kept.begin(keys[0], path, c.body)
	if p != nil {
		return nil, false, p
	}
	if was == nil {
		return text, true, nil
	}
	var keep []byte
	defer func() { j.kept.end(was, c.tenant, keep) }()
	c.ctx = context.WithoutCancel(c.ctx) // the caller asks again after a broken connection, and gets this answer
	text, err = answers(j, c)
	if err == nil {
		keep = text
	}
	return text, false, err
}

// describe answers /openapi.json.
func (j *JSON) describe(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		(&problem{status: http.StatusMethodNotAllowed, detail: "read it with GET"}).write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // the caller has gone away; nobody is left to be told
}

// read reads the body of a call.
func (j *JSON) read(w http.ResponseWriter, r *http.Request, c *call) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return &problem{status: http.StatusMethodNotAllowed, detail: "ask with POST"}
	}
	// A browser sends no such type to another site without asking that first.
	if t := r.Header.Get("Content-Type"); t != "application/json" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return &problem{status: http.StatusUnsupportedMediaType, detail: "the Content-Type must be application/json, not " + limit.Quote(t)}
		}
	}
	if r.ContentLength > maxBody {
		w.Header().Set("Connection", "close") // nobody reads the body
		return errTooLarge
	}
	buf := make([]byte, 0, firstRead)
	if n := r.ContentLength; n >= 0 && n < firstRead {
		buf = make([]byte, 0, n+1) // with room for the end to be seen
	}
	for {
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > maxBody:
			w.Header().Set("Connection", "close")
			return errTooLarge
		case errors.Is(err, io.EOF):
			if err := j.hold(c, int64(perByte*len(buf))); err != nil {
				return err
			}
			c.body = unsafe.String(unsafe.SliceData(buf), len(buf)) // buf is written no more
			return nil
		case err != nil:
			return &problem{status: http.StatusBadRequest, detail: "the body did not come in whole"}
		}
		if len(buf) == cap(buf) {
			if err := j.hold(c, int64(cap(buf))); err != nil {
				w.Header().Set("Connection", "close")
				return err
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
	}
}

var (
	errTooLarge = &problem{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("the body may have %d bytes; send several calls", maxBody)}
	errFull     = &problem{status: http.StatusServiceUnavailable, detail: fmt.Sprintf("the calls under way hold %d MiB, and may not hold more", maxHeld>>20), again: true}
)

// hold takes n bytes of the door's memory, until release.
func (j *JSON) hold(c *call, n int64) error {
	if j.held.Add(n) > maxHeld {
		j.held.Add(-n)
		return errFull
	}
	c.held += n
	return nil
}

func (j *JSON) release(c *call) { j.held.Add(-c.held) }

// decide answers /v1/decide.
func (j *JSON) decide(c *call) ([]byte, error) {
	d, err := readDecide(c.body)
	if err != nil {
		return nil, err
	}
	if err := j.hold(c, int64(mostDecision*len(d.requests))); err != nil {
		return nil, err
	}
	c.tenant = tenantOf(d.requests[0])
	defer c.within(d.timeout)()
	decisions := decideAll(c.ctx, j.client, d.requests)
	var n counts
	for i := range decisions {
		n.add(decisions[i])
	}
	j.metrics.addTo(&j.metrics.json, &n)
	return appendDecisions(make([]byte, 0, 32+256*len(decisions)), decisions, j.config.Unknown), nil
}

// within bounds the call's time; 0 does not. It returns what ends that.
func (c *call) within(timeout time.Duration) func() {
	if timeout <= 0 {
		return func() {}
	}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(c.ctx, timeout)
	return cancel
}

// reserve answers /v1/reserve.
func (j *JSON) reserve(c *call) ([]byte, error) {
	q, err := readReserve(c.body)
	if err != nil {
		return nil, err
	}
	c.tenant = tenantOf(q.request)
	defer c.within(q.timeout)()
	g, d, err := j.reservations.reserve(c.ctx, q.request)
	if err != nil {
		return nil, err
	}
	j.metrics.count(doorJSON, resultOf(d))
	b := appendDecision([]byte(`{"decision":`), d, j.config.Unknown)
	if g.id != "" {
		b = appendText(append(b, `,"reservation":{"id":`...), g.id)
		b = appendSeconds(append(b, `,"expires_seconds":`...), q.request.Expires)
		b = appendTotals(append(b, `,"reserved":`...), g.reserved)
		b = append(b, '}')
	}
	return append(b, "}\n"...), nil
}

// extend answers /v1/extend.
func (j *JSON) extend(c *call) ([]byte, error) {
	q, err := readExtend(c.body)
	if err != nil {
		return nil, err
	}
	defer c.within(q.timeout)()
	d, err := j.reservations.extend(c.ctx, &q.message)
	if err != nil {
		return nil, err
	}
	j.metrics.count(doorJSON, resultOf(d))
	return append(appendDecision([]byte(`{"decision":`), d, j.config.Unknown), "}\n"...), nil
}

// commit answers /v1/commit.
func (j *JSON) commit(c *call) ([]byte, error) {
	m, err := readCommit(c.body)
	if err != nil {
		return nil, err
	}
	// Whoever breaks the connection off means it all the same.
	answer, err := j.reservations.commit(context.WithoutCancel(c.ctx), m)
	if err != nil {
		return nil, err
	}
	b := appendTotals([]byte(`{"committed":`), answer.GetCommitted())
	b = strconv.AppendBool(append(b, `,"late":`...), answer.GetLate())
	return append(b, "}\n"...), nil
}

// appendTotals writes totals; costs only where there are any.
func appendTotals(b []byte, m *quotav1.Totals) []byte {
	b = strconv.AppendInt(append(b, `{"units":`...), m.GetUnits(), 10)
	for i, cost := range m.GetCosts() {
		if i == 0 {
			b = append(b, `,"costs":{`...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(appendText(b, cost.GetName()), ':'), cost.GetUnits(), 10)
	}
	if len(m.GetCosts()) > 0 {
		b = append(b, '}')
	}
	return append(b, '}')
}

// cancel answers /v1/cancel.
func (j *JSON) cancel(c *call) ([]byte, error) {
	m, err := readCancel(c.body)
	if err != nil {
		return nil, err
	}
	if _, err := j.reservations.commit(context.WithoutCancel(c.ctx), m); err != nil {
		return nil, err
	}
	return []byte("{}\n"), nil
}

// statusOf is HTTP's status of a refusal.
func statusOf(code codes.Code) int {
	switch code {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.InvalidArgument:
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// problemOf is what an error is answered with.
func problemOf(err error) *problem {
	var p *problem
	var r *refusal
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &r):
		status := statusOf(r.code)
		return &problem{status: status, detail: r.detail, again: status == http.StatusServiceUnavailable}
	case errors.Is(err, errJSON):
		return &problem{status: http.StatusBadRequest, detail: err.Error()}
	}
	return &problem{status: http.StatusServiceUnavailable, detail: err.Error(), again: true}
}
