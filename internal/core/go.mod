module github.com/f4ee788f/quota/internal/core

go 1.26.0

require (
	github.com/cockroachdb/datadriven v1.0.3
	github.com/f4ee788f/quota/proto/quota v0.1.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.48.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require (
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/f4ee788f/quota/proto/quota => ../../proto/quota
