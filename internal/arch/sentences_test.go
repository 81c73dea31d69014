package arch_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostSentence is the most words of a sentence in a comment. A longer one is read twice.
const mostSentence = 25

// sentence is a sentence of a comment, by the line that its paragraph begins on.
type sentence struct {
	line int
	text string
}

func (s sentence) words() int { return len(strings.Fields(s.text)) }

// sentencesOf returns the sentences of the comments on lines of their own, without directives. The end of a paragraph
// ends a sentence, and so does a full stop. A colon, semicolon or question mark does before a capital, a bracket or a
// quote.
func sentencesOf(source []byte) (all []sentence) {
	var paragraph []string
	begins := 0
	end := func() {
		begun := 0
		for i, w := range paragraph {
			next := ""
			if i+1 < len(paragraph) {
				next = paragraph[i+1]
			}
			if next == "" || endsSentence(w, next[0]) {
				all = append(all, sentence{begins, strings.Join(paragraph[begun:i+1], " ")})
				begun = i + 1
			}
		}
		paragraph = paragraph[:0]
	}
	line := 0
	for text := range bytes.Lines(source) {
		line++
		comment, is := strings.CutPrefix(strings.TrimSpace(string(text)), "//")
		words := strings.Fields(comment)
		if !is || len(words) == 0 || strings.HasPrefix(words[0], "go:") {
			end()
			continue
		}
		if len(paragraph) == 0 {
			begins = line
		}
		paragraph = append(paragraph, words...)
	}
	end()
	return all
}

func endsSentence(word string, next byte) bool {
	switch word[len(word)-1] {
	case '.':
		return true
	case ':', ';', '?':
		return next >= 'A' && next <= 'Z' || strings.IndexByte("(`\"", next) >= 0
	}
	return false
}

// productionFiles calls f with each handwritten Go file below root that is no test. path is relative to root.
func productionFiles(root string, f func(path string, source []byte)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(source, []byte("// Code generated ")) {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err == nil {
			f(filepath.ToSlash(rel), source)
		}
		return err
	})
}

// No sentence of a comment in production code has more than mostSentence words.
func TestSentencesOfCommentsAreShort(t *testing.T) {
	files := 0
	err := productionFiles(filepath.Join("..", ".."), func(path string, source []byte) {
		files++
		for _, s := range sentencesOf(source) {
			if n := s.words(); n > mostSentence {
				t.Errorf("%s:%d: a sentence has %d words, and may have %d: %s", path, s.line, n, mostSentence, s.text)
			}
		}
	})
	if err != nil || files < 300 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// Each rule about the end of a sentence has its effect.
func TestSentencesAreToldApart(t *testing.T) {
	source := []byte(`package p

//go:build linux

// One ends here. Two: not here; but
// it ends: Here. Three has a list:
//
//   - first
//   - second; (third)?
func f() { // not looked at
	// Of a file.go, a name ends nothing
	f()
}
`)
	want := []sentence{
		{5, "One ends here."}, {5, "Two: not here; but it ends:"}, {5, "Here."}, {5, "Three has a list:"},
		{8, "- first - second;"}, {8, "(third)?"}, {11, "Of a file.go, a name ends nothing"},
	}
	if got := sentencesOf(source); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
