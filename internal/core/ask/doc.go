// Package ask is how a process without leases asks a quota-agent: frames of questions and of
// answers, as the messages of DecisionService in proto/quota/v1/decision.proto have them. They are
// written and read by hand, and not by generated code, for there a decision of a tenth of a
// microsecond would spend several on the heap; a test holds the two to the same messages.
//
// Read frame.go for questions and answers, codec.go for how gRPC carries frames. Nothing is kept here.
package ask
