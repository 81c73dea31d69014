package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Bounds of the pages that people read: README.md and docs/*.md, in words as wc -w counts them.
const (
	mostWords   = 2_500 // of a page
	proofWords  = 3_500 // of docs/error-bound.md
	allWords    = 25_000
	mostColumns = 120 // of a line of prose
)

// page is a Markdown file, by its path below the root.
type page struct {
	path  string
	text  string
	prose []string // its lines by number, from 0; those of code are empty
}

func readPage(root, path string) (*page, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	p := &page{path: path, text: string(text)}
	fenced := false
	for line := range strings.SplitSeq(p.text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced || strings.HasPrefix(line, "    ") {
			line = ""
		}
		fenced = fenced != fence
		p.prose = append(p.prose, line)
	}
	return p, nil
}

func (p *page) words() int { return len(strings.Fields(p.text)) }

// long are faults of lines that are too long to be read in a diff. Tables and images cannot be broken.
func (p *page) long() (faults []string) {
	for i, line := range p.prose {
		if n := utf8.RuneCountInString(line); n > mostColumns && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "![") {
			faults = append(faults, fmt.Sprintf("%s:%d has %d columns, and may have %d", p.path, i+1, n, mostColumns))
		}
	}
	return faults
}

// anchors are what headings can be linked by, as GitHub makes them.
func (p *page) anchors() (all []string) {
	for _, line := range p.prose {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1"))))
	}
	return all
}

var (
	linked = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// named is a path of the tree in code, which is as good as a link.
	named = regexp.MustCompile("`((?:cmd|examples|internal|loadtest|migrations|pkg|proto|scripts)/[\\w./-]*\\w)`")
)

// broken are faults of relative links and paths that lead nowhere.
func (p *page) broken(root string) (faults []string) {
	fault := func(line int, format string, a ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: ", p.path, line+1)+fmt.Sprintf(format, a...))
	}
	for i, line := range p.prose {
		for _, m := range linked.FindAllStringSubmatch(line, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, anchored := strings.Cut(m[1], "#")
			to := p.path
			if target != "" {
				to = filepath.Join(filepath.Dir(p.path), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				fault(i, "%s does not exist", m[1])
				continue
			}
			if !anchored {
				continue
			}
			if other, err := readPage(root, to); err != nil || !slices.Contains(other.anchors(), anchor) {
				fault(i, "%s has no heading #%s", to, anchor)
			}
		}
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				fault(i, "there is no %s", m[1])
			}
		}
	}
	return faults
}

// The pages are of a size that people read, and what they link to is there.
func TestPages(t *testing.T) {
	const root = "../.."
	docs, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(docs) < 10 {
		t.Fatalf("%d pages, %v", len(docs), err)
	}
	all := 0
	for _, path := range append([]string{root + "/README.md"}, docs...) {
		p, err := readPage(root, strings.TrimPrefix(filepath.Clean(path), root+"/"))
		if err != nil {
			t.Fatal(err)
		}
		most := mostWords
		if p.path == "docs/error-bound.md" {
			most = proofWords
		}
		n := p.words()
		if all += n; n > most {
			t.Errorf("%s has %d words, and may have %d", p.path, n, most)
		}
		for _, fault := range append(p.long(), p.broken(root)...) {
			t.Error(fault)
		}
	}
	if all > allWords {
		t.Errorf("README.md and docs have %d words, and may have %d", all, allWords)
	}
	for _, path := range []string{"loadtest/sim/report/README.md", "loadtest/bench/curves/report/README.md", "loadtest/size/README.md"} {
		p, err := readPage(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range p.broken(root) {
			t.Error(fault)
		}
	}
}

// Each fault of a page is found, and what is none is not.
func TestFaultsOfPagesAreFound(t *testing.T) {
	const root = "testdata/pages"
	p, err := readPage(root, "page.md")
	if err != nil {
		t.Fatal(err)
	}
	got := append(p.long(), p.broken(root)...)
	want := []string{
		"page.md:3 has 121 columns, and may have 120",
		"page.md:9: missing.md does not exist",
		"page.md:9: other.md has no heading #nothing",
		"page.md:9: page.md has no heading #ab",
		"page.md:10: there is no internal/nothing.go",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if n := p.words(); n != 327 { // as wc -w has it
		t.Errorf("got %d words, want 327", n)
	}
}
