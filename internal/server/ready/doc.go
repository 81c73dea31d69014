// Package ready says whether each part that the server depends on works, and if not, why. It also knows for how long
// the ledger has been there without a break, which a clock alone cannot tell (ledger.go).
//
// Each part is asked every second, with two seconds to answer; a change is logged and told once. Read ready.go first.
package ready
