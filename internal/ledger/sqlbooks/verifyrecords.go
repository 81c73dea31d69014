package sqlbooks

import (
	"context"
	"database/sql"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// VerifyRecords is ledger.Books'.
func (b *Books) VerifyRecords(ctx context.Context) (faults []ledger.Fault, more int64, err error) {
	err = b.read(ctx, func(tx *sql.Tx) error {
		faults, more, err = ledger.VerifyRecords(ctx, records{tx})
		return err
	})
	return faults, more, err
}

// records is ledger.Records in a transaction.
type records struct{ tx *sql.Tx }

// all calls do for what a query selects, scanned into one.
func all[T any](ctx context.Context, tx *sql.Tx, query string, do func(*T) error, into func(*T) []any) error {
	rows, err := tx.QueryContext(ctx, query)
	return each(rows, err, func(rows *sql.Rows) error {
		var one T
		if err := rows.Scan(into(&one)...); err != nil {
			return err
		}
		return do(&one)
	})
}

// Audit is ledger.Records'.
func (r records) Audit(ctx context.Context, do func(*ledger.AuditRow) error) error {
	return all(ctx, r.tx, "SELECT number, at_ms, actor, action, object, before, after, chain FROM audit_log ORDER BY number", do,
		func(a *ledger.AuditRow) []any {
			return []any{&a.Number, &a.At, &a.Actor, &a.Action, &a.Object, &a.Before, &a.After, &a.Chain}
		})
}

// AuditHead is ledger.Records'.
func (r records) AuditHead(ctx context.Context) (head int64, err error) {
	err = r.tx.QueryRowContext(ctx, "SELECT audit FROM policy_heads WHERE id = 1").Scan(&head)
	return head, err
}

// Versions is ledger.Records'.
func (r records) Versions(ctx context.Context, do func(int64) error) error {
	return all(ctx, r.tx, "SELECT number FROM policy_versions ORDER BY number", func(n *int64) error { return do(*n) }, func(n *int64) []any { return []any{n} })
}

// Keys is ledger.Records'.
func (r records) Keys(ctx context.Context, do func(id, hash string, revoked bool) error) error {
	type key struct {
		id, hash string
		revoked  bool
	}
	return all(ctx, r.tx, "SELECT id, hash, revoked_ms <> 0 FROM access_keys ORDER BY id", func(k *key) error { return do(k.id, k.hash, k.revoked) },
		func(k *key) []any { return []any{&k.id, &k.hash, &k.revoked} })
}

// Statements is ledger.Records'.
func (r records) Statements(ctx context.Context, do func(*ledger.KeptStatement) error) error {
	return all(ctx, r.tx, `SELECT s.tenant, s.number, s.period, s.from_s, s.to_s, s.height, s.block_hash, s.digest, s.document, s.forced, b.hash
		FROM statements s LEFT JOIN blocks b ON b.height = s.height ORDER BY s.tenant, s.number`, do,
		func(s *ledger.KeptStatement) []any {
			return []any{&s.Tenant, &s.Number, &s.Period, &s.From, &s.To, &s.Height, &s.BlockHash, &s.Digest, &s.Document, &s.Forced, &s.Block}
		})
}

// Credits is ledger.Records'.
func (r records) Credits(ctx context.Context, do func(*ledger.KeptCredit) error) error {
	return all(ctx, r.tx, "SELECT c.id, c.tenant, c.amount, v.credit IS NOT NULL FROM credits c LEFT JOIN credit_voids v ON v.credit = c.id ORDER BY c.id", do,
		func(c *ledger.KeptCredit) []any { return []any{&c.ID, &c.Tenant, &c.Amount, &c.Voided} })
}

// Burns is ledger.Records'.
func (r records) Burns(ctx context.Context, do func(*ledger.KeptBurn) error) error {
	return all(ctx, r.tx, "SELECT credit, number, left_before, paid, lapsed, left_after FROM credit_burns ORDER BY credit, number", do,
		func(b *ledger.KeptBurn) []any {
			return []any{&b.Credit, &b.Number, &b.Before, &b.Paid, &b.Lapsed, &b.After}
		})
}
