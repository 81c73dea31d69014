package doors

import (
	"fmt"
	"time"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

const (
	// maxRequests bounds the requests of one call: as many as a thin client's message has.
	maxRequests = ask.MaxQuestions
	// maxTimeout bounds what a caller may ask an answer to take. The client's own longest wait ends it earlier.
	maxTimeout = time.Hour
)

// decideRequest is the body of /v1/decide.
type decideRequest struct {
	requests []client.Request
	timeout  time.Duration // 0 for the client's own
}

// readDecide reads the body of /v1/decide.
func readDecide(text string) (d decideRequest, err error) {
	r, err := newJSONReader(text)
	if err != nil {
		return d, err
	}
	if err := r.open('{', "an object"); err != nil {
		return d, err
	}
	var seen uint
	for first := true; ; first = false {
		name, more, err := r.member(first)
		switch {
		case err != nil:
			return d, err
		case !more && seen&1 == 0:
			return d, fmt.Errorf("%w: it has no requests", errJSON)
		case !more:
			return d, r.end()
		case name == "requests":
			if err = once(&seen, 0, name); err == nil {
				d.requests, err = r.requests()
			}
		case name == "timeout_ms":
			if err = once(&seen, 1, name); err == nil {
				d.timeout, err = r.timeout()
			}
		default:
			err = unread(name)
		}
		if err != nil {
			return d, err
		}
	}
}

// requests reads a list of 1 to maxRequests requests.
func (r *jsonReader) requests() ([]client.Request, error) {
	if err := r.open('[', "a list of requests"); err != nil {
		return nil, in("requests", err)
	}
	var list []client.Request
	for {
		more, err := r.more(']', len(list) == 0)
		switch {
		case err != nil:
			return nil, in("requests", err)
		case more && len(list) == maxRequests, !more && len(list) == 0:
			return nil, fmt.Errorf("%w: requests: there may be 1 to %d", errJSON, maxRequests)
		case !more:
			return list, nil
		}
		q, err := r.request()
		if err != nil {
			return nil, in(fmt.Sprintf("requests[%d]", len(list)), err)
		}
		list = append(list, q)
	}
}

// request reads one request.
func (r *jsonReader) request() (q client.Request, err error) {
	if err := r.open('{', "a request"); err != nil {
		return q, err
	}
	q.Units = 1
	var seen uint
	for first := true; ; first = false {
		name, more, err := r.member(first)
		switch {
		case err != nil:
			return q, err
		case !more && seen&1 == 0:
			return q, fmt.Errorf("%w: it has no attributes", errJSON)
		case !more:
			return q, nil
		case name == "attributes":
			if err = once(&seen, 0, name); err == nil {
				q.Attributes, err = r.attributes()
			}
		case name == "units":
			if err = once(&seen, 1, name); err == nil {
				q.Units, err = r.units(name)
			}
		default:
			err = unread(name)
		}
		if err != nil {
			return q, err
		}
	}
}

// attributes reads an object of strings.
func (r *jsonReader) attributes() ([]client.Attribute, error) {
	if err := r.open('{', "an object of attributes"); err != nil {
		return nil, in("attributes", err)
	}
	list := make([]client.Attribute, 0, 4)
	for {
		name, more, err := r.member(len(list) == 0)
		if err != nil {
			return nil, in("attributes", err)
		}
		if !more {
			return list, nil
		}
		if len(list) == ask.MaxAttributes {
			return nil, fmt.Errorf("%w: attributes: there may be %d", errJSON, ask.MaxAttributes)
		}
		for i := range list {
			if list[i].Name == name {
				return nil, fmt.Errorf("%w: attributes: %s is there twice", errJSON, limit.Quote(name))
			}
		}
		value, err := r.string("a string")
		if err != nil {
			return nil, in("attributes."+limit.Quote(name), err)
		}
		list = append(list, client.Attribute{Name: name, Value: value})
	}
}

// units reads what a request costs.
func (r *jsonReader) units(name string) (int64, error) {
	v, err := r.integer(0, limit.MaxUnits)
	return v, in(name, err)
}

// timeout reads how long an answer may take.
func (r *jsonReader) timeout() (time.Duration, error) {
	v, err := r.integer(1, maxTimeout.Milliseconds())
	return time.Duration(v) * time.Millisecond, in("timeout_ms", err)
}
