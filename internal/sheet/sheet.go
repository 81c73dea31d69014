// Package sheet writes text for cells of a CSV file. Names come from whoever calls a
// gateway, and a spreadsheet takes some of them for formulas.
package sheet

// Text is what stands for s in a cell: itself, but that one that begins with = + - @ ' a
// tab or a carriage return has a ' before it, which keeps spreadsheets from working it
// out, and which a reader may always take away. A dash alone stays: it stands for nothing.
// Numbers are no text.
func Text(s string) string {
	if s == "" || s == "-" {
		return s
	}
	switch s[0] {
	case '=', '+', '-', '@', '\'', '\t', '\r':
		return "'" + s
	}
	return s
}
