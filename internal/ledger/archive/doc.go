// Package archive is the files that retention puts months of a ledger into: gzip of
// JSON lines, of which the first says what the file is of. A file has its name once it
// is whole, durable, and was read back; one that is cut off has another. Read write.go
// first.
package archive
