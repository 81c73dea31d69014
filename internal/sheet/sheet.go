// Package sheet writes text for cells of a CSV file. Names come from a gateway's callers, and a spreadsheet takes some
// of them for formulas.
package sheet

// Text is what a cell shows for s. Text that begins with = + - @ ' a tab or a carriage return gets a ' before it. That
// keeps spreadsheets from working it out, and a reader may always take it away. A dash alone stays, because it stands
// for nothing. Numbers are no text.
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
