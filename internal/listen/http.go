// Package listen bounds every listener of the product. No other package makes an http.Server (internal/arch).
package listen

import (
	"net/http"
	"time"
)

const (
	// HeaderWait bounds how long a request's headers may take.
	HeaderWait = 5 * time.Second
	// ReadWait bounds how long a whole request may take to come, its body included. One that never comes holds nothing
	// for longer.
	ReadWait = 30 * time.Second
	// IdleWait bounds how long a connection may say nothing between requests.
	IdleWait = 2 * time.Minute
	// CallWait bounds how long a connection that carries calls may go without one.
	CallWait = 5 * time.Minute
	// MaxHeader bounds a request's headers, in bytes.
	MaxHeader = 64 << 10
)

// HTTP returns a server of h with these bounds. The caller bounds how long an answer may take, because some are
// streams.
func HTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: HeaderWait, ReadTimeout: ReadWait, IdleTimeout: IdleWait, MaxHeaderBytes: MaxHeader, ConnContext: connContext,
	}
}
