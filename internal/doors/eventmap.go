package doors

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// ErrEventMap is wrapped by every fault in how events are configured.
var ErrEventMap = errors.New("doors: invalid mapping of events")

// errEvent is the beginning of what is wrong with an event.
var errEvent = errors.New("the event cannot be booked")

// requestsCost is what a Request's Units are of.
const requestsCost = limit.Requests

// DefaultEventAttributes is what attributes of events are read from when nothing else is configured. Those are members
// of Envoy AI Gateway's UsageEvent, also where it is a CloudEvent's data, and a CloudEvent's subject.
func DefaultEventAttributes() []string {
	return []string{"tenant=attributes.tenant,data.attributes.tenant,data.tenant,subject", "model=model_requested,data.model_requested,data.model"}
}

// DefaultEventCosts is likewise what costs of events are read from.
func DefaultEventCosts() []string {
	costs := []string{requestsCost + "=value:1"}
	for _, c := range [...][2]string{
		{"tokens_in", "input_tokens"}, {"tokens_out", "output_tokens"}, {"tokens_cached", "cached_input_tokens"},
		{"tokens_cache_write", "cache_write_input_tokens"}, {"tokens_reasoning", "reasoning_tokens"},
	} {
		costs = append(costs, c[0]+"="+c[1]+",data."+c[1])
	}
	return costs
}

// EventMap says what attributes and costs an event has. It is immutable and safe for concurrent use.
type EventMap struct{ attributes, costs []eventField }

// eventField is an attribute or a cost.
type eventField struct {
	name    string
	sources []eventSource // the first that has a value wins
}

// eventSource is where a value comes from.
type eventSource struct {
	path  string // names of members with dots between
	value any    // in its place: a string, or a number
}

// ParseEventMap reads `NAME=SOURCE[,SOURCE…]` for each attribute, and for each cost. A source is one of:
//
//	data.model    a member of the event, or a member of that member, and so on. A name may have dots itself.
//	value:TEXT    TEXT itself; of a cost 0 to 1,000,000,000.
//
// The cost requests is the event's units. Events need a tenant, so one of the attributes has to be that. Every fault is
// reported, joined; each wraps ErrEventMap.
func ParseEventMap(attributes, costs []string) (EventMap, error) {
	var m EventMap
	var err, more error
	if len(costs) > 1+limit.MaxCosts {
		return m, fmt.Errorf("%w: at most %d costs and %s, got %d", ErrEventMap, limit.MaxCosts, requestsCost, len(costs))
	}
	m.attributes, err = parseEventFields("attribute", attributes, func(text string) (any, error) { return text, nil })
	m.costs, more = parseEventFields("cost", costs, func(text string) (any, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > limit.MaxUnits {
			return nil, fmt.Errorf("%s; write 0 to %d", limit.Quote(text), int64(limit.MaxUnits))
		}
		return json.Number(text), nil
	})
	if err = errors.Join(err, more); err != nil {
		return EventMap{}, err
	}
	for _, f := range m.attributes {
		if f.name == limit.AttrTenant {
			return m, nil
		}
	}
	return EventMap{}, fmt.Errorf("%w: no attribute is the %s", ErrEventMap, limit.AttrTenant)
}

func parseEventFields(kind string, specs []string, value func(text string) (any, error)) (fields []eventField, err error) {
	if len(specs) > maxAttributes {
		return nil, fmt.Errorf("%w: at most %d of a kind, got %d", ErrEventMap, maxAttributes, len(specs))
	}
	var faults []error
	seen := make(map[string]bool, len(specs))
	for _, spec := range specs {
		name, from, ok := strings.Cut(spec, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok || !limit.ValidName(name):
			faults = append(faults, fmt.Errorf("%w: %s %s: write NAME=SOURCE, such as tenant=attributes.tenant", ErrEventMap, kind, limit.Quote(spec)))
			continue
		case seen[name]:
			faults = append(faults, fmt.Errorf("%w: %s %s is given twice; separate its sources with a comma", ErrEventMap, kind, name))
			continue
		}
		seen[name] = true
		f := eventField{name: name}
		for _, word := range strings.Split(from, ",") {
			s := eventSource{path: strings.TrimSpace(word)}
			if text, constant := strings.CutPrefix(s.path, "value:"); constant && text != "" {
				s.path = ""
				var err error
				if s.value, err = value(text); err != nil {
					faults = append(faults, fmt.Errorf("%w: %s %s: %w", ErrEventMap, kind, name, err))
				}
			} else if constant || s.path == "" {
				faults = append(faults, fmt.Errorf("%w: %s %s: a source is empty", ErrEventMap, kind, name))
			}
			f.sources = append(f.sources, s)
		}
		fields = append(fields, f)
	}
	return fields, errors.Join(faults...)
}

// request returns what an event says of usage.
func (m *EventMap) request(event map[string]any) (q client.Request, err error) {
	for i := range m.attributes {
		f := &m.attributes[i]
		v, at := f.of(event)
		text := ""
		switch v := v.(type) {
		case nil:
		case string:
			text = v
		case bool:
			text = strconv.FormatBool(v)
		case json.Number:
			text = v.String()
		default:
			return q, fmt.Errorf("%w: %s is no attribute; write a string, a number or a truth value", errEvent, limit.Quote(at))
		}
		switch {
		case text != "":
			q.Attributes = append(q.Attributes, client.Attribute{Name: f.name, Value: text})
		case f.name == limit.AttrTenant:
			return q, fmt.Errorf("%w: it has no tenant at %s", errEvent, f.paths())
		}
	}
	for i := range m.costs {
		f := &m.costs[i]
		v, at := f.of(event)
		if v == nil {
			continue
		}
		number, ok := v.(json.Number)
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if !ok || err != nil || n < 0 || n > limit.MaxUnits {
			said, _ := json.Marshal(v) // it was JSON
			return q, fmt.Errorf("%w: %s is %s; write an integer from 0 to %d", errEvent, limit.Quote(at), limit.Quote(string(said[:min(len(said), 40)])), int64(limit.MaxUnits))
		}
		if f.name == requestsCost {
			q.Units = n
		} else if n > 0 {
			q.Costs = append(q.Costs, client.Cost{Name: f.name, Units: n})
		}
	}
	return q, nil
}

// of returns the first of the field's values that the event has, and where it is.
func (f *eventField) of(event map[string]any) (v any, at string) {
	for _, s := range f.sources {
		if v = s.value; v == nil {
			v = member(event, s.path)
		}
		if v != nil && v != "" {
			return v, s.path
		}
	}
	return nil, ""
}

// paths is where the field is looked for.
func (f *eventField) paths() string {
	var all []string
	for _, s := range f.sources {
		all = append(all, s.path)
	}
	return strings.Join(all, ", ")
}

// member returns the member at a path; nil for none. A member's whole name comes before a path of the same text.
func member(of map[string]any, path string) any {
	if v, ok := of[path]; ok {
		return v
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if inner, ok := of[path[:i]].(map[string]any); ok {
			if v := member(inner, path[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}
