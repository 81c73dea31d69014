package display

import (
	"io"
	"strings"
	"unicode"

	textwidth "golang.org/x/text/width"
)

// Table writes rows; the first is the header and the longest. Cells are escaped, and aligned by the columns that their
// characters take on a terminal. numbers says which columns are right-aligned.
func Table(w io.Writer, rows [][]string, numbers map[int]bool) error {
	if len(rows) == 0 {
		return nil
	}
	all := make([][]string, len(rows))
	widths := make([]int, len(rows[0]))
	for i, row := range rows {
		all[i] = make([]string, len(row))
		for j, cell := range row {
			all[i][j] = Escape(cell, "")
			widths[j] = max(widths[j], width(all[i][j]))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for j, cell := range row {
			pad := strings.Repeat(" ", widths[j]-width(cell))
			if numbers[j] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString("  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n") // nothing ends in blanks
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// width is how many columns of a terminal s takes. A character that East Asian fonts make wide takes two; one that is
// put onto the one before takes none.
func width(s string) (n int) {
	for _, r := range s {
		switch k := textwidth.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case k == textwidth.EastAsianWide, k == textwidth.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
