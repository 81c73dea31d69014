// Package arch holds no code: its tests keep the directions of docs/architecture.md, and the size and links of the docs.
// Arrows point at limit, lease and ledger, which know no engine, no protocol and no
// flags; the SDK drags no store into its users' programs and shows them no type but
// its own and the standard library's; errors become gRPC codes in one place.
package arch
