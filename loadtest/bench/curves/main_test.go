package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is around the marks stays as it is, however much comes between them.
func TestWriteKeepsThePage(t *testing.T) {
	report := t.TempDir()
	page := filepath.Join(report, "README.md")
	after := strings.Repeat("what follows\n", 1000)
	if err := os.WriteFile(page, []byte("what precedes\n"+beginMark+"old\n"+endMark+after), 0o644); err != nil {
		t.Fatal(err)
	}
	f := figure{file: "f", title: "A figure", point: "points", note: strings.Repeat("new\n", 100), charted: 1, curves: named("ns")}
	f.add("1", 1)
	f.add("10", 2)
	if err := write(report, []figure{f}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(got); !strings.HasPrefix(s, "what precedes\n"+beginMark+"### A figure\n") || !strings.HasSuffix(s, "\n"+endMark+after) {
		t.Errorf("the page is now\n%s", s)
	}
}

// A figure takes the place of the section with its chart, a new one comes last, and sections of figures that were not made stay.
func TestWriteKeepsOtherSections(t *testing.T) {
	report := t.TempDir()
	page := filepath.Join(report, "README.md")
	section := func(name, text string) string {
		return "### Figure " + name + "\n\n| points | ns |\n| --- | --- |\n| 1 | 1.00 |\n\n" + text + "\n\n![Figure " + name + "](" + name + ".svg)\n\n"
	}
	if err := os.WriteFile(page, []byte(beginMark+section("a", "old")+section("b", "old")+section("c", "old")+endMark), 0o644); err != nil {
		t.Fatal(err)
	}
	made := func(name string) figure {
		f := figure{file: name, title: "Figure " + name, point: "points", note: "new", charted: 1, curves: named("ns")}
		f.add("1", 1)
		return f
	}
	if err := write(report, []figure{made("b"), made("d")}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := beginMark + section("a", "old") + section("b", "new") + section("c", "old") + section("d", "new") + endMark; string(got) != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}
