// Package render is how quotactl answers: with a table, also as CSV or JSON for programs, or with a sentence, also as
// JSON.
//
// A terminal obeys control characters, so a Screen escapes them. It keeps the first error, so that a command whose
// answer was lost fails. A file goes through byte by byte. Read printer.go first.
package render
