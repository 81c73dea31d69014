// Package display shows text of others to people. Such text cannot act upon the terminal or turn other text around
// (escape.go). Tables stand in columns in any script (table.go).
package display
