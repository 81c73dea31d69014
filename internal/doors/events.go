package doors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// EventsPath is what Events serves.
const EventsPath = "/v1/events"

// eventBytes is how many bytes an event's byte is once it was read, at most: a list of lists takes so many.
const eventBytes = 48

// EventsClient books usage that others measured.
type EventsClient interface {
	BookEvents(ctx context.Context, events ...client.Event) (booked int, err error)
}

// Events is the door of usage that others measured: an http.Handler of EventsPath, safe for concurrent use. It answers
// 200 once all events of a call are booked, and survive a kill of the process. Those that were known are not booked again.
type Events struct {
	client  EventsClient
	mapping EventMap
	metrics *Metrics
	held    atomic.Int64 // bytes of calls under way
}

// NewEvents returns the handler. It starts nothing.
func NewEvents(c EventsClient, mapping EventMap, m *Metrics) *Events {
	return &Events{client: c, mapping: mapping, metrics: m}
}

// ServeHTTP answers one call.
func (e *Events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	booked, known, err := e.take(w, r)
	if err != nil {
		p := problemOf(err)
		e.metrics.called(EventsPath, callResult(p.status))
		p.write(w)
		return
	}
	e.metrics.called(EventsPath, resultOK)
	text := fmt.Appendf(nil, `{"booked":%d,"known":%d}`+"\n", booked, known)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the caller has gone away; it comes again, and the events are known
}

// take books the events of a call.
func (e *Events) take(w http.ResponseWriter, r *http.Request) (booked, known int, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return 0, 0, &problem{status: http.StatusMethodNotAllowed, detail: "send events with POST"}
	}
	media, ok := eventType(r.Header.Get("Content-Type"))
	if !ok {
		return 0, 0, &problem{status: http.StatusUnsupportedMediaType, detail: fmt.Sprintf("the Content-Type must be %s, %s or %s, not %s",
			typeUsageEvent, typeCloudEvent, typeBatch, limit.Quote(r.Header.Get("Content-Type")))}
	}
	size := r.ContentLength
	if size < 0 {
		size = maxBody
	}
	if size > maxBody {
		w.Header().Set("Connection", "close") // nobody reads the body
		return 0, 0, errEventsTooLarge
	}
	defer e.held.Add(-eventBytes * size)
	if e.held.Add(eventBytes*size) > maxHeld {
		w.Header().Set("Connection", "close")
		return 0, 0, errFull
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return 0, 0, errEventsTooLarge
	}
	if err != nil {
		return 0, 0, &problem{status: http.StatusBadRequest, detail: "the body did not come in whole"}
	}
	events, err := readEvents(media, body, &e.mapping)
	if err != nil {
		return 0, 0, &problem{status: http.StatusBadRequest, detail: err.Error()}
	}
	booked, err = e.client.BookEvents(r.Context(), events...)
	if err != nil {
		return 0, 0, eventProblem(err, media == typeBatch)
	}
	return booked, len(events) - booked, nil
}

var errEventsTooLarge = &problem{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("the body may have %d bytes; send several calls", maxBody)}

// eventProblem is what events that were not booked are answered with.
func eventProblem(err error, batch bool) error {
	if errors.Is(err, client.ErrUnjournalled) {
		return &problem{status: http.StatusServiceUnavailable, again: true, detail: "nothing is booked, for it would not survive a kill: " +
			"the agent runs without --journal, or the journal has no room. --events-without-journal books all the same"}
	}
	where, status := "", http.StatusBadRequest
	var which *client.EventError
	if errors.As(err, &which) {
		err = which.Err
		if batch {
			where = fmt.Sprintf("events[%d]: ", which.Index)
		}
	}
	detail := err.Error()
	var why *client.NotBookedError
	if errors.As(err, &why) {
		row := headers.RowOf(why.Reason.String())
		status, detail = row.Status, fmt.Sprintf("%s: %s", errEvent, why.Reason)
		switch why.Reason {
		case client.ReasonInvalid:
			detail = fmt.Sprintf("%s: %v", errEvent, why.Fault)
		case client.ReasonNoPlan:
			detail += ": its tenant is not known, or has no plan"
		default:
		}
	}
	return &problem{status: status, detail: where + detail, again: status == http.StatusServiceUnavailable}
}
