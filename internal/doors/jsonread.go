package doors

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// errJSON is the beginning of what is wrong with a body that is not JSON, or not of the form that a route asks for.
var errJSON = errors.New("the body cannot be read")

// jsonReader reads a JSON text strictly, from its beginning: a member that is there twice, or that nobody reads, is an
// error. It takes a third of the time of encoding/json, which matters in a batch. Strings are parts of the text where
// they have no escapes.
type jsonReader struct {
	text string
	at   int
}

// newJSONReader returns a reader of a text that is UTF-8.
func newJSONReader(text string) (jsonReader, error) {
	if !utf8.ValidString(text) {
		return jsonReader{}, fmt.Errorf("%w: it is not UTF-8", errJSON)
	}
	return jsonReader{text: text}, nil
}

func (r *jsonReader) fault(want string) error {
	if r.at >= len(r.text) {
		return fmt.Errorf("%w: it ends where %s should be", errJSON, want)
	}
	return fmt.Errorf("%w: at byte %d is %s, where %s should be", errJSON, r.at, limit.Quote(r.text[r.at:min(r.at+8, len(r.text))]), want)
}

// peek is the next byte that is no space; 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// open reads the bracket that begins an object or an array.
func (r *jsonReader) open(bracket byte, what string) error {
	if r.peek() != bracket {
		return r.fault(what)
	}
	r.at++
	return nil
}

// more reports whether another element comes, and reads the comma before it, or else the closing bracket. first is
// whether none came before.
func (r *jsonReader) more(closing byte, first bool) (bool, error) {
	c := r.peek()
	switch {
	case c == closing:
		r.at++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		r.at++
		if r.peek() == closing {
			return false, r.fault("another value")
		}
		return true, nil
	}
	return false, r.fault("a comma or " + strconv.Quote(string(closing)))
}

// member reads the next member's name and the colon after it; false at the object's end.
func (r *jsonReader) member(first bool) (name string, more bool, err error) {
	if more, err = r.more('}', first); err != nil || !more {
		return "", false, err
	}
	if name, err = r.string("a member's name"); err != nil {
		return "", false, err
	}
	if r.peek() != ':' {
		return "", false, r.fault("a colon")
	}
	r.at++
	return name, true, nil
}

// string reads a string.
func (r *jsonReader) string(what string) (string, error) {
	if r.peek() != '"' {
		return "", r.fault(what)
	}
	start := r.at + 1
	for i := start; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			r.at = i + 1
			return r.text[start:i], nil
		case c == '\\':
			return r.escaped(i, what)
		case c < 0x20:
			r.at = i
			return "", r.fault("no control character")
		}
	}
	r.at = len(r.text)
	return "", r.fault("a quotation mark")
}

// escaped reads a string whose first escape is at i.
func (r *jsonReader) escaped(i int, what string) (s string, err error) {
	start := r.at
	for ; i < len(r.text) && r.text[i] != '"'; i++ {
		if r.text[i] == '\\' {
			i++
		}
	}
	if i >= len(r.text) {
		r.at = len(r.text)
		return "", r.fault("a quotation mark")
	}
	if err := json.Unmarshal([]byte(r.text[start:i+1]), &s); err != nil {
		return "", r.fault(what)
	}
	r.at = i + 1
	return s, nil
}

// integer reads a number without fraction and exponent, from least to most.
func (r *jsonReader) integer(least, most int64) (int64, error) {
	c := r.peek()
	if c != '-' && (c < '0' || c > '9') {
		return 0, r.fault("an integer")
	}
	end := r.at + 1
	for end < len(r.text) && strings.IndexByte("0123456789.eE+-", r.text[end]) >= 0 {
		end++
	}
	word := r.text[r.at:end]
	v, err := strconv.ParseInt(word, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) || len(word) > 1 && word[0] == '0' || strings.HasPrefix(word, "-0") {
		return 0, fmt.Errorf("%w: %s is no integer", errJSON, limit.Quote(word))
	}
	if err != nil || v < least || v > most {
		return 0, fmt.Errorf("%w: %s; write %d to %d", errJSON, limit.Quote(word), least, most)
	}
	r.at = end
	return v, nil
}

// boolean reads true or false.
func (r *jsonReader) boolean() (bool, error) {
	r.peek()
	for word, v := range map[string]bool{"true": true, "false": false} {
		if strings.HasPrefix(r.text[r.at:], word) {
			r.at += len(word)
			return v, nil
		}
	}
	return false, r.fault("true or false")
}

// end reports what follows the text's value.
func (r *jsonReader) end() error {
	if r.peek() != 0 || r.at < len(r.text) {
		return r.fault("the end")
	}
	return nil
}

// unread is the error about a member that nobody reads.
func unread(name string) error {
	return fmt.Errorf("%w: no member %s is known here", errJSON, limit.Quote(name))
}

// once notes a member by its number, and refuses one that was there.
func once(seen *uint, number uint, name string) error {
	if *seen&(1<<number) != 0 {
		return fmt.Errorf("%w: %s is there twice", errJSON, limit.Quote(name))
	}
	*seen |= 1 << number
	return nil
}

// in says where an error is.
func in(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}
