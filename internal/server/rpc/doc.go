// Package rpc has what the calls of all rooms share. It reads and writes page sizes and times, and names the ledger's
// errors on the wire. It also ends streams: with the server, or once their reader stalls.
//
// It decides nothing, and imports no other room. Read stream.go first.
package rpc
