// Package sqlstore keeps policy versions, tenants, keys, switches and the audit log in SQL: SQLite, in the ledger's
// file, and Postgres, in the ledger's database. It is one code for both, on database/sql; the schema is in migrations/,
// numbers 0101 and up.
//
// Every change is one transaction that first takes the only row of policy_heads: changes are serialized across servers,
// their numbers have the order of commits, and a poll of that row misses nothing. The audit row is part of it. Nothing
// that was answered is lost but by what loses commits of the engine.
//
// Read store.go first, then apply.go.
package sqlstore
