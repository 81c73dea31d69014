// Package sqlstore keeps policy versions, tenants, keys, switches and the audit log in SQL. They are in the ledger's
// SQLite file, or in its Postgres database. It is one code for both, on database/sql. The schema is in migrations/,
// numbers 0101 and up.
//
// Every change is one transaction that first takes the only row of policy_heads. So changes are serialized across
// servers, their numbers have the order of commits, and a poll of that row misses nothing. The audit row is part of the
// transaction. An answered change is lost only if the engine loses commits.
//
// Read store.go first, then apply.go.
package sqlstore
