package migrations

import (
	"io/fs"
	"strings"
	"testing"
)

// A file goes to the database whole, in one transaction: what it says to goose besides where a statement begins and ends would be
// a comment, and a way down would be gone at once.
func TestFilesAreOneWayInOneTransaction(t *testing.T) {
	names, err := fs.Glob(files, "*/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			_, says, ok := strings.Cut(line, "+goose ")
			switch says = strings.TrimSpace(says); {
			case !ok, says == "Up", says == "StatementBegin", says == "StatementEnd":
			default:
				t.Errorf("%s: +goose %s has no meaning here", name, says)
			}
		}
	}
}
