package policy

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

// root reads data as one YAML document and returns its top value, or nil when the
// document is empty or so broken that nothing more can be said of it.
func root(f *faults, data []byte) *yaml.Node {
	if len(data) > MaxDocument {
		f.add(1, "the document has %d bytes; at most %d are allowed", len(data), MaxDocument)
		return nil
	}
	if !utf8.Valid(data) {
		f.add(1, "the document is not UTF-8")
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
		f.add(more.Line, "a file holds one document; remove the second")
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

func (f *faults) yaml(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	f.add(line, "this is not YAML: %s", text)
}

// plain refuses what makes YAML say one thing and mean another: aliases (which may
// also multiply), merges, tags.
func plain(f *faults, n *yaml.Node, depth int) bool {
	if depth > maxDepth {
		f.add(n.Line, "values nest too deeply; at most %d levels", maxDepth)
		return false
	}
	ok := true
	switch {
	case n.Kind == yaml.AliasNode:
		f.add(n.Line, "aliases (*%s) are not supported; write the value out", n.Value)
		return false
	case n.Anchor != "":
		f.add(n.Line, "anchors (&%s) are not supported; write the value out where it is needed", n.Anchor)
		ok = false
	case n.Style&yaml.TaggedStyle != 0:
		f.add(n.Line, "tags (%s) are not supported; write the value plainly", n.Tag)
		ok = false
	}
	for _, c := range n.Content {
		if !plain(f, c, depth+1) {
			ok = false
		}
	}
	return ok
}

// field is one key of a mapping with its value.
type field struct {
	name string
	line int
	node *yaml.Node
}

// mapping returns the fields of n in order. Duplicate keys are faults, and so is
// anything else than a mapping; what names it for the message.
func mapping(f *faults, n *yaml.Node, what string) []field {
	if n.Kind != yaml.MappingNode {
		if !isNull(n) {
			f.add(n.Line, "%s must be a mapping of keys to values, not %s", what, kind(n))
		}
		return nil
	}
	seen := make(map[string]int, len(n.Content)/2)
	var fields []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			f.add(k.Line, "a key of %s must be a word, not %s", what, kind(k))
			continue
		}
		if first, ok := seen[k.Value]; ok {
			f.add(k.Line, "%s has the key %s twice; the first is on line %d", what, limit.Quote(k.Value), first)
			continue
		}
		seen[k.Value] = k.Line
		fields = append(fields, field{k.Value, k.Line, v})
	}
	return fields
}

// unknown reports a key that is not one of allowed.
func unknown(f *faults, fd field, what string, allowed ...string) {
	sort.Strings(allowed)
	f.add(fd.line, "unknown key %s in %s; allowed are %s", limit.Quote(fd.name), what, strings.Join(allowed, ", "))
}

// items returns the elements of the list n.
func items(f *faults, n *yaml.Node, what string, most int) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		if !isNull(n) {
			f.add(n.Line, "%s must be a list, not %s", what, kind(n))
		}
		return nil
	}
	if len(n.Content) > most {
		f.add(n.Line, "%s has %d elements; at most %d are allowed", what, len(n.Content), most)
		return n.Content[:most]
	}
	return n.Content
}

// text returns the scalar n as it is written.
func text(f *faults, n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		f.add(n.Line, "%s must be a word, not %s", what, kind(n))
		return "", false
	}
	return n.Value, true
}

// texts returns a list of scalars, or a scalar as a list of one.
func texts(f *faults, n *yaml.Node, what string, most int) ([]string, bool) {
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		return []string{n.Value}, true
	}
	if n.Kind != yaml.SequenceNode {
		f.add(n.Line, "%s must be a word or a list of words, not %s", what, kind(n))
		return nil, false
	}
	ok := true
	out := []string{}
	for _, e := range items(f, n, what, most) {
		s, good := text(f, e, "an element of "+what)
		ok = ok && good
		out = append(out, s)
	}
	return out, ok
}

// name returns the scalar n as a name.
func name(f *faults, n *yaml.Node, what string) (string, bool) {
	s, ok := text(f, n, what)
	if ok && !limit.ValidName(s) {
		f.add(n.Line, "%s is not a name; %s has 1 to %d of the characters A-Z a-z 0-9 . _ -", limit.Quote(s), what, limit.MaxNameLen)
		return "", false
	}
	return s, ok
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func kind(n *yaml.Node) string {
	switch {
	case isNull(n):
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
