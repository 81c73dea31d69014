package sqlstore

import (
	"context"
	"database/sql"

	"github.com/f4ee788f/quota/internal/policy"
)

// noteEdges notes when a tenant's overrides begin or end, in the place of its earlier notes.
func (t *tx) noteEdges(ctx context.Context, tenant string, overrides []policy.LimitSpec) error {
	if _, err := t.ExecContext(ctx, "DELETE FROM override_edges WHERE tenant = $1", tenant); err != nil {
		return unavailable("write edges", err)
	}
	var rows [][]any
	for _, at := range policy.Edges(overrides, t.s.now()) {
		rows = append(rows, []any{tenant, at})
	}
	return unavailable("write edges", t.insert(ctx, "INSERT INTO override_edges (tenant, at_ms) VALUES ", "", rows))
}

// passEdges makes a change of each tenant with an edge that has come, so that agents are told.
func (t *tx) passEdges(ctx context.Context) error {
	now := t.s.now().UnixMilli()
	rows, err := t.QueryContext(ctx, "SELECT DISTINCT tenant FROM override_edges WHERE at_ms <= $1 ORDER BY tenant", now)
	ids, err := collect(rows, err, "read edges", func(id *string, rows *sql.Rows) error { return rows.Scan(id) })
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, id := range ids {
		t.wrote = true
		t.heads.Tenants++
		if _, err := t.ExecContext(ctx, "UPDATE tenants SET change = $1 WHERE id = $2", t.heads.Tenants, id); err != nil {
			return unavailable("write tenants", err)
		}
	}
	_, err = t.ExecContext(ctx, "DELETE FROM override_edges WHERE at_ms <= $1", now)
	return unavailable("write edges", err)
}
