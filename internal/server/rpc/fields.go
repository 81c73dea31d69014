package rpc

import (
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/wire"
)

// Actor is who does what a server does by itself, in the audit log.
const Actor = "server"

// Page is how many a page has that asks for n, where 0 leaves it to the server.
func Page(n int32) int {
	if n == 0 {
		return wire.DefaultPage
	}
	return int(n)
}

// Millis is a time in Unix milliseconds, 0 for none.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Moment is a time from Unix milliseconds, none for 0.
func Moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Text is s without bytes that are no text, which gRPC does not carry.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// StatusLabel is a status as the label "status" of a metric has it.
func StatusLabel(s fmt.Stringer) string { return strings.TrimPrefix(s.String(), "STATUS_") }
