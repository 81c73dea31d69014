// Package archive is the files that retention puts months of a ledger into. A file is gzip of JSON lines, and
// the first line says what the file is of. A file has its name once it is whole, durable, and was read back;
// one that is cut off has another. Read write.go first.
package archive
