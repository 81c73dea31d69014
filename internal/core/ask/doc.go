// Package ask is how a process without leases asks a quota-agent. It sends frames of questions and gets frames
// of answers, encoded as DecisionService's messages in proto/quota/v1/decision.proto. They are written and read
// by hand: generated code would spend several tenths of a microsecond on the heap, for a decision that takes
// one. A test holds the two to the same messages.
//
// Read frame.go for questions and answers, codec.go for how gRPC carries frames, line.go for a connection of its own.
package ask
