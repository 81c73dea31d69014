// Package rest serves the services over HTTP, beside health, readiness and metrics. A call is translated into a gRPC
// call within this process, which passes the same gate (inprocess.go). Parameters are checked as strictly as bodies
// (query.go). A breakdown's file is streamed (download.go).
//
// A web page of another origin reaches nothing. Read http.go first.
package rest
