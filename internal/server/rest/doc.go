// Package rest serves the services over HTTP, beside health, readiness and metrics: a call is translated into gRPC's
// and made in this process, through the same gate (inprocess.go). Parameters are held as strictly as bodies (query.go).
// A breakdown's file is streamed (download.go).
//
// A web page of another origin reaches nothing. Read http.go first.
package rest
