package rpc

import (
	"fmt"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/wire"
)

// Actor is the name in the audit log for what a server does by itself.
const Actor = "server"

// Page is the size of a page for which n were asked; 0 leaves it to the server.
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

// Text is s with bytes that are no text replaced, because gRPC does not carry them.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// StatusLabel is a status as the label "status" of a metric has it.
func StatusLabel(s fmt.Stringer) string { return strings.TrimPrefix(s.String(), "STATUS_") }
