// Package render is how quotactl answers: a table for people, the same as CSV or JSON for programs; or a sentence, or
// the same as JSON.
//
// What it writes may end up on a terminal, which obeys control characters: a Screen escapes them, and keeps the first
// error, so that a command whose answer was lost fails. A file goes through byte by byte. Read printer.go first.
package render
