// Package arch holds no code. Its tests keep the directions of docs/architecture.md, the size and links of the docs,
// and the length of sentences in comments. Arrows point at limit, lease and ledger, which know no engine, no protocol
// and no flags. The SDK drags no store into its users' programs, and shows them only its own types and the standard
// library's. Errors become gRPC codes in one place.
package arch
