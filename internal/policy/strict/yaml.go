package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// MaxDocument is the size of a document, in bytes.
const MaxDocument = 1 << 20

// maxDepth is how deep values may nest; a policy needs seven levels.
const maxDepth = 32

// Root reads data as one YAML document and returns its top value. It returns nil when the document is empty, or too
// broken to be read further.
func Root(f *Collector, data []byte) *yaml.Node {
	if len(data) > MaxDocument {
		f.Add(1, "the document has %d bytes; at most %d are allowed", len(data), MaxDocument)
		return nil
	}
	if !utf8.Valid(data) {
		f.Add(1, "the document is not UTF-8")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		f.yaml(err)
		return nil
	}
	if err := dec.Decode(&more); err == nil {
		f.Add(more.Line, "a file holds one document; remove the second")
	} else if !errors.Is(err, io.EOF) {
		f.yaml(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil
	}
	if !plain(f, doc.Content[0], 0) {
		return nil
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

func (f *Collector) yaml(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	f.Add(line, "this is not YAML: %s", text)
}

// plain refuses YAML that says one thing and means another: aliases (which may also multiply), merges, tags.
func plain(f *Collector, n *yaml.Node, depth int) bool {
	if depth > maxDepth {
		f.Add(n.Line, "values nest too deeply; at most %d levels", maxDepth)
		return false
	}
	ok := true
	switch {
	case n.Kind == yaml.AliasNode:
		f.Add(n.Line, "aliases (*%s) are not supported; write the value out", n.Value)
		return false
	case n.Anchor != "":
		f.Add(n.Line, "anchors (&%s) are not supported; write the value out where it is needed", n.Anchor)
		ok = false
	case n.Style&yaml.TaggedStyle != 0:
		f.Add(n.Line, "tags (%s) are not supported; write the value plainly", n.Tag)
		ok = false
	}
	for _, c := range n.Content {
		if !plain(f, c, depth+1) {
			ok = false
		}
	}
	return ok
}

// Field is one key of a mapping with its value.
type Field struct {
	Name string
	Line int
	Node *yaml.Node
}

// Mapping returns the fields of n in order. Duplicate keys are faults, and so is anything but a mapping. what names it
// in the message.
func Mapping(f *Collector, n *yaml.Node, what string) []Field {
	if n.Kind != yaml.MappingNode {
		if !IsNull(n) {
			f.Add(n.Line, "%s must be a mapping of keys to values, not %s", what, Kind(n))
		}
		return nil
	}
	seen := make(map[string]int, len(n.Content)/2)
	var fields []Field
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			f.Add(k.Line, "a key of %s must be a word, not %s", what, Kind(k))
			continue
		}
		if first, ok := seen[k.Value]; ok {
			f.Add(k.Line, "%s has the key %s twice; the first is on line %d", what, limit.Quote(k.Value), first)
			continue
		}
		seen[k.Value] = k.Line
		fields = append(fields, Field{k.Value, k.Line, v})
	}
	return fields
}

// Unknown reports a key that is not one of allowed.
func Unknown(f *Collector, fd Field, what string, allowed ...string) {
	sort.Strings(allowed)
	f.Add(fd.Line, "unknown key %s in %s; allowed are %s", limit.Quote(fd.Name), what, strings.Join(allowed, ", "))
}

// Items returns the elements of the list n.
func Items(f *Collector, n *yaml.Node, what string, most int) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		if !IsNull(n) {
			f.Add(n.Line, "%s must be a list, not %s", what, Kind(n))
		}
		return nil
	}
	if len(n.Content) > most {
		f.Add(n.Line, "%s has %d elements; at most %d are allowed", what, len(n.Content), most)
		return n.Content[:most]
	}
	return n.Content
}

// Text returns the scalar n as it is written.
func Text(f *Collector, n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || IsNull(n) {
		f.Add(n.Line, "%s must be a word, not %s", what, Kind(n))
		return "", false
	}
	return n.Value, true
}

// Texts returns a list of scalars, or a scalar as a list of one.
func Texts(f *Collector, n *yaml.Node, what string, most int) ([]string, bool) {
	if n.Kind == yaml.ScalarNode && !IsNull(n) {
		return []string{n.Value}, true
	}
	if n.Kind != yaml.SequenceNode {
		f.Add(n.Line, "%s must be a word or a list of words, not %s", what, Kind(n))
		return nil, false
	}
	ok := true
	out := []string{}
	for _, e := range Items(f, n, what, most) {
		s, good := Text(f, e, "an element of "+what)
		ok = ok && good
		out = append(out, s)
	}
	return out, ok
}

// Name returns the scalar n as a name.
func Name(f *Collector, n *yaml.Node, what string) (string, bool) {
	s, ok := Text(f, n, what)
	if ok && !limit.ValidName(s) {
		f.Add(n.Line, "%s is not a name; %s has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(s), what, limit.MaxNameLen)
		return "", false
	}
	return s, ok
}

// IsNull reports whether a key has no value.
func IsNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// Kind names a node's kind in words.
func Kind(n *yaml.Node) string {
	switch {
	case IsNull(n):
		return "nothing"
	case n.Kind == yaml.ScalarNode:
		return fmt.Sprintf("the word %s", limit.Quote(n.Value))
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	}
	return "something else"
}

// Word reads a value that may not be empty.
func Word(f *Collector, fd Field, what string, to *string) {
	v, ok := Text(f, fd.Node, fd.Name+" of "+what)
	if ok && v == "" {
		f.Add(fd.Line, "%s of %s is empty; leave it out or give it a value", fd.Name, what)
	}
	*to = v
}

// Number reads a whole number within bounds; nil for anything else.
func Number(f *Collector, fd Field, what, of string, least, most int64) *int64 {
	var v string
	if Word(f, fd, what, &v); v == "" {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != v {
		f.Add(fd.Line, "%s of %s is %s; it must be a whole number of %s, %d to %d", fd.Name, what, limit.Quote(v), of, least, most)
		return nil
	}
	return &n
}
