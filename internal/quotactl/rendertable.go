package quotactl

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/sheet"
)

// table is rows of text under a header; numbers says which columns are right-aligned.
type table struct {
	header  []string
	numbers map[int]bool
	rows    [][]string
}

// add takes a row; a cell that is empty stays so in CSV, where a dash would be a value.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table, with a dash for an empty cell.
func (t *table) print(w io.Writer) error {
	all := append([][]string{t.header}, t.rows...)
	for i, row := range all {
		all[i] = make([]string, len(row))
		for j, cell := range row {
			all[i][j] = Dash(cell)
		}
	}
	return display.Table(w, all, t.numbers)
}

// csv writes the table with the header's words in lower case, and text as sheet.Text has it.
func (t *table) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	header := make([]string, len(t.header))
	for i, h := range t.header {
		header[i] = strings.ReplaceAll(strings.ToLower(h), " ", "_")
	}
	_ = out.Write(header) // Flush and Error tell
	for _, row := range t.rows {
		cells := slices.Clone(row)
		for i := range cells {
			if !t.numbers[i] {
				cells[i] = sheet.Text(cells[i])
			}
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return out.Error()
}
