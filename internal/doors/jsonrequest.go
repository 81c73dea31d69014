package doors

import (
	"fmt"
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/core/ask"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

const (
	// maxRequests bounds the requests of one call: as many as a thin client's message has.
	maxRequests = ask.MaxQuestions
	// maxTimeout bounds what a caller may ask an answer to take. The client's own longest wait ends it earlier.
	maxTimeout = time.Hour
)

// field is a member of an object that a route asks for.
type field struct {
	name   string
	needed bool
	read   func() error
}

// object reads an object of these members, each at most once.
func (r *jsonReader) object(fields ...field) error {
	if err := r.open('{', "an object"); err != nil {
		return err
	}
	var seen uint
	for first := true; ; first = false {
		name, more, err := r.member(first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if at < 0 {
			return unread(name)
		}
		if err := once(&seen, uint(at), name); err != nil {
			return err
		}
		if err := fields[at].read(); err != nil {
			return err
		}
	}
	for i, f := range fields {
		if f.needed && seen&(1<<i) == 0 {
			return fmt.Errorf("%w: it has no %s", errJSON, f.name)
		}
	}
	return nil
}

// readBody reads a body that is an object of these members.
func readBody(text string, fields func(*jsonReader) []field) error {
	r, err := newJSONReader(text)
	if err != nil {
		return err
	}
	if err := r.object(fields(&r)...); err != nil {
		return err
	}
	return r.end()
}

// decideRequest is the body of /v1/decide.
type decideRequest struct {
	requests []client.Request
	timeout  time.Duration // 0 for the client's own
}

// readDecide reads the body of /v1/decide.
func readDecide(text string) (d decideRequest, err error) {
	err = readBody(text, func(r *jsonReader) []field {
		return []field{
			{"requests", true, func() (err error) { d.requests, err = r.requests(); return err }},
			{"timeout_ms", false, func() (err error) { d.timeout, err = r.timeout(); return err }},
		}
	})
	return d, err
}

// reserveRequest is the body of /v1/reserve.
type reserveRequest struct {
	request client.Request
	timeout time.Duration
}

// readReserve reads the body of /v1/reserve.
func readReserve(text string) (q reserveRequest, err error) {
	q.request = client.Request{Units: 1, Expires: defaultReservationTime}
	err = readBody(text, func(r *jsonReader) []field {
		return []field{
			{"attributes", true, func() (err error) { q.request.Attributes, err = r.attributes(); return err }},
			{"units", false, func() (err error) { q.request.Units, err = r.units("units"); return err }},
			{"costs", false, func() (err error) { q.request.Costs, err = r.costs(); return err }},
			{"expires_seconds", false, func() error {
				s, err := r.integer(int64(client.MinReservationTime/time.Second), int64(client.MaxReservationTime/time.Second))
				q.request.Expires = time.Duration(s) * time.Second
				return in("expires_seconds", err)
			}},
			{"whole", false, func() (err error) {
				q.request.Whole, err = r.boolean()
				return in("whole", err)
			}},
			{"timeout_ms", false, func() (err error) { q.timeout, err = r.timeout(); return err }},
		}
	})
	return q, err
}

// extendRequest is the body of /v1/extend.
type extendRequest struct {
	message quotav1.ExtendRequest
	timeout time.Duration
}

// readExtend reads the body of /v1/extend.
func readExtend(text string) (q *extendRequest, err error) {
	q = new(extendRequest)
	return q, readBody(text, func(r *jsonReader) []field {
		return append(r.totals(&q.message.Units, &q.message.Costs), r.id(&q.message.Id),
			field{"used", false, func() error {
				q.message.Used = new(quotav1.Totals)
				return in("used", r.object(r.totals(&q.message.Used.Units, &q.message.Used.Costs)...))
			}},
			field{"timeout_ms", false, func() (err error) { q.timeout, err = r.timeout(); return err }})
	})
}

// readCommit reads the body of /v1/commit.
func readCommit(text string) (m *quotav1.CommitRequest, err error) {
	m = &quotav1.CommitRequest{Totals: new(quotav1.Totals)}
	return m, readBody(text, func(r *jsonReader) []field {
		return append(r.totals(&m.Totals.Units, &m.Totals.Costs), r.id(&m.Id))
	})
}

// readCancel reads the body of /v1/cancel.
func readCancel(text string) (m *quotav1.CommitRequest, err error) {
	m = &quotav1.CommitRequest{Totals: new(quotav1.Totals)}
	return m, readBody(text, func(r *jsonReader) []field { return []field{r.id(&m.Id)} })
}

// id is the member of a reservation's id.
func (r *jsonReader) id(id *string) field {
	return field{"id", true, func() (err error) {
		if *id, err = r.string("a string"); err == nil && len(*id) > maxID {
			err = fmt.Errorf("%w: an id has at most %d characters", errJSON, maxID)
		}
		return in("id", err)
	}}
}

// totals are the members of what was used or is to be reserved.
func (r *jsonReader) totals(units *int64, costs *[]*quotav1.Cost) []field {
	return []field{
		{"units", false, func() (err error) { *units, err = r.units("units"); return err }},
		{"costs", false, func() error {
			list, err := r.costs()
			for _, c := range list {
				*costs = append(*costs, &quotav1.Cost{Name: c.Name, Units: c.Units})
			}
			return err
		}},
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
		case name == "costs":
			if err = once(&seen, 2, name); err == nil {
				q.Costs, err = r.costs()
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

// costs reads an object of units by the names of costs.
func (r *jsonReader) costs() ([]client.Cost, error) {
	if err := r.open('{', "an object of costs"); err != nil {
		return nil, in("costs", err)
	}
	var list []client.Cost
	for {
		name, more, err := r.member(len(list) == 0)
		if err != nil {
			return nil, in("costs", err)
		}
		if !more {
			return list, nil
		}
		if len(list) == maxCosts {
			return nil, fmt.Errorf("%w: costs: there may be %d", errJSON, maxCosts)
		}
		if slices.ContainsFunc(list, func(c client.Cost) bool { return c.Name == name }) {
			return nil, fmt.Errorf("%w: costs: %s is there twice", errJSON, limit.Quote(name))
		}
		units, err := r.units("costs." + limit.Quote(name))
		if err != nil {
			return nil, err
		}
		list = append(list, client.Cost{Name: name, Units: units})
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
