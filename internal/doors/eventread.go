package doors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"unicode/utf8"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
)

// maxEvents bounds the events of one call.
const maxEvents = 256

// Content types of /v1/events.
const (
	typeUsageEvent = "application/json" // a UsageEvent of Envoy AI Gateway
	typeCloudEvent = "application/cloudevents+json"
	typeBatch      = "application/cloudevents-batch+json"
)

// eventType returns which of these a Content-Type is; false for none.
func eventType(header string) (string, bool) {
	media, _, err := mime.ParseMediaType(header)
	return media, err == nil && (media == typeUsageEvent || media == typeCloudEvent || media == typeBatch)
}

// readEvents reads a call's body. The error says which event is wrong.
func readEvents(media string, body []byte, m *EventMap) ([]client.Event, error) {
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: it is not UTF-8", errJSON)
	}
	if media != typeBatch {
		e, err := readEvent(media, body, m)
		if err != nil {
			return nil, err
		}
		return []client.Event{e}, nil
	}
	var all []json.RawMessage
	if err := decodeJSON(body, &all); err != nil {
		return nil, err
	}
	if all == nil || len(all) > maxEvents {
		return nil, fmt.Errorf("%w: write a list of 0 to %d events", errJSON, maxEvents)
	}
	events := make([]client.Event, len(all))
	for i, text := range all {
		var err error
		if events[i], err = readEvent(typeCloudEvent, text, m); err != nil {
			return nil, in(fmt.Sprintf("events[%d]", i), err)
		}
	}
	return events, nil
}

func readEvent(media string, text []byte, m *EventMap) (e client.Event, err error) {
	var event map[string]any
	if err := decodeJSON(text, &event); err != nil {
		return e, err
	}
	if event == nil {
		return e, fmt.Errorf("%w: write an object", errJSON)
	}
	if name, twice := doubled(text); twice {
		return e, fmt.Errorf("%w: %s is there twice", errJSON, limit.Quote(name))
	}
	if media == typeUsageEvent {
		if e.ID, err = eventName(event, "event_id"); err != nil {
			return e, err
		}
	} else if e.Source, e.ID, err = cloudEventName(event); err != nil {
		return e, err
	}
	e.Request, err = m.request(event)
	return e, err
}

// cloudEventName returns what names a CloudEvent, once it is one.
func cloudEventName(event map[string]any) (source, id string, err error) {
	if v := event["specversion"]; v != "1.0" {
		return "", "", fmt.Errorf("%w: its specversion is not \"1.0\"", errEvent)
	}
	if v, ok := event["type"].(string); !ok || v == "" {
		return "", "", fmt.Errorf("%w: it has no type", errEvent)
	}
	if source, err = eventName(event, "source"); err == nil {
		id, err = eventName(event, "id")
	}
	return source, id, err
}

// eventName reads a part of what names an event.
func eventName(event map[string]any, of string) (string, error) {
	v, ok := event[of].(string)
	if !ok || v == "" || len(v) > client.MaxEventName {
		return "", fmt.Errorf("%w: %s: write a string of 1 to %d bytes", errEvent, limit.Quote(of), client.MaxEventName)
	}
	return v, nil
}

// decodeJSON reads a whole text. Numbers stay as they are written.
func decodeJSON(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: it ends too early", errJSON)
		}
		return fmt.Errorf("%w: %w", errJSON, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows its value", errJSON)
	}
	return nil
}

// doubled returns the name of a member that an object of the text, which is JSON, has twice. Which of the two is meant
// nobody can say: another reader may bill the other.
func doubled(text []byte) (name string, twice bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()                // as decodeJSON: a number of any size ends nothing
	var within []map[string]bool // names so far of each object around; nil for a list
	isName := false
	for {
		t, err := d.Token()
		if err != nil {
			return "", false
		}
		name, isText := t.(string)
		switch {
		case isName && isText:
			names := within[len(within)-1]
			if names[name] {
				return name, true
			}
			names[name], isName = true, false
			continue
		case t == json.Delim('{'):
			within = append(within, make(map[string]bool))
		case t == json.Delim('['):
			within = append(within, nil)
		case t == json.Delim('}') || t == json.Delim(']'):
			within = within[:len(within)-1]
		}
		isName = len(within) > 0 && within[len(within)-1] != nil
	}
}
