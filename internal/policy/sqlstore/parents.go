package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
)

// Parents implements policystore.Store.
func (s *Store) Parents(ctx context.Context, ids, prefixes []string) ([]string, error) {
	query, args := "SELECT DISTINCT parent FROM tenants WHERE parent <> '' AND ("+s.among("id", "$1"), []any{s.texts(ids)}
	for _, p := range prefixes {
		// Ids are ASCII, and compared by their bytes: ids with this prefix lie between it and the prefix followed by
		// 0x7f.
		args = append(args, p, p+"\x7f")
		query += fmt.Sprintf(" OR id >= $%d AND id < $%d", len(args)-1, len(args))
	}
	rows, err := s.db.QueryContext(ctx, query+") ORDER BY parent", args...)
	return collect(rows, err, "read parents", func(id *string, rows *sql.Rows) error { return rows.Scan(id) })
}
