// Package rpc has what the calls of all rooms of the server share: how a page's size and a time are read and written,
// which errors of the ledger cross the wire by which name, and how a stream ends: with the server, or once its reader
// takes nothing.
//
// It decides nothing, and imports no other room. Read stream.go first.
package rpc
