package render

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/sheet"
)

// Table is rows of text under a header; numbers says which columns are right-aligned.
type Table struct {
	Header  []string
	Numbers map[int]bool
	Rows    [][]string
}

// Add adds a row. An empty cell stays empty in CSV, where a dash would be a value.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// print writes the table, with a dash for an empty cell.
func (t *Table) print(w io.Writer) error {
	all := append([][]string{t.Header}, t.Rows...)
	for i, row := range all {
		all[i] = make([]string, len(row))
		for j, cell := range row {
			all[i][j] = Dash(cell)
		}
	}
	return display.Table(w, all, t.Numbers)
}

// csv writes the table with the header's words in lower case, and cells as sheet.Text writes them.
func (t *Table) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	header := make([]string, len(t.Header))
	for i, h := range t.Header {
		header[i] = strings.ReplaceAll(strings.ToLower(h), " ", "_")
	}
	_ = out.Write(header) // Flush and Error tell
	for _, row := range t.Rows {
		cells := slices.Clone(row)
		for i := range cells {
			if !t.Numbers[i] {
				cells[i] = sheet.Text(cells[i])
			}
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return out.Error()
}
