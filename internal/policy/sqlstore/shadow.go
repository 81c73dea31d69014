package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// SetShadow implements policystore.Store.
func (s *Store) SetShadow(ctx context.Context, actor string, doc *policy.Document, dryRun bool) (policystore.Applied, error) {
	var out policystore.Applied
	err := s.change(ctx, func(t *tx) error {
		if t.heads.Version == 0 {
			return fmt.Errorf("%w: there is no policy yet that a shadow could be tried beside; apply one first", policystore.ErrInvalid)
		}
		now, err := t.document(ctx, t.heads.Version)
		if err != nil {
			return err
		}
		if err := t.checkPlans(ctx, now, doc); err != nil {
			return err
		}
		if err := t.checkCaps(ctx, doc); err != nil {
			return err
		}
		all, err := t.overridden(ctx)
		if err != nil {
			return err
		}
		if _, err := fit(all, doc, t.s.now()); err != nil {
			return err
		}
		changes := policy.DiffPolicy(now, doc)
		if len(changes) > 0 {
			changes = append(policy.Untried(doc), changes...) // first: a long list is cut
		}
		out = policystore.Applied{Version: t.heads.Shadow, Changes: policy.Bounded(changes)}
		if len(changes) == 0 {
			return nil
		}
		was := t.heads.Shadow
		if was != 0 {
			before, err := t.document(ctx, was)
			if err != nil {
				return err
			}
			if len(policy.DiffPolicy(before, doc)) == 0 {
				return nil
			}
		}
		out.Changed = true
		if dryRun {
			return nil
		}
		if t.heads.Shadow, err = t.insertVersion(ctx, actor, doc, 1); err != nil {
			return err
		}
		out.Version = t.heads.Shadow
		return t.audit(actor, "policy.shadow", strconv.FormatInt(t.heads.Shadow, 10), versionJSON{Version: was}, versionJSON{t.heads.Shadow, out.Changes})
	})
	if err != nil {
		return policystore.Applied{}, err
	}
	return out, nil
}

// ClearShadow implements policystore.Store.
func (s *Store) ClearShadow(ctx context.Context, actor string) (int64, error) {
	was := int64(0)
	err := s.change(ctx, func(t *tx) error {
		if was = t.heads.Shadow; was == 0 {
			return nil
		}
		t.heads.Shadow = 0
		return t.audit(actor, "policy.shadow-clear", strconv.FormatInt(was, 10), versionJSON{Version: was}, versionJSON{})
	})
	if err != nil {
		return 0, err
	}
	return was, nil
}

// PromoteShadow implements policystore.Store.
func (s *Store) PromoteShadow(ctx context.Context, actor string, version int64) (policystore.Applied, error) {
	var out policystore.Applied
	err := s.change(ctx, func(t *tx) error {
		was := t.heads.Shadow
		switch {
		case was == 0:
			return fmt.Errorf("%w: no shadow policy is tried", policystore.ErrNotFound)
		case version != 0 && version != was:
			return fmt.Errorf("%w: version %d is tried, not %d", policystore.ErrConflict, was, version)
		}
		doc, err := t.document(ctx, was)
		if err != nil {
			return err
		}
		if out, err = t.apply(ctx, actor, "policy.promote", doc); err != nil {
			return err
		}
		t.heads.Shadow = 0
		return t.audit(actor, "policy.shadow-clear", strconv.FormatInt(was, 10), versionJSON{Version: was}, versionJSON{})
	})
	if err != nil {
		return policystore.Applied{}, err
	}
	return out, nil
}

// Shadows implements policystore.Store.
func (s *Store) Shadows(ctx context.Context) ([]int64, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT number FROM policy_versions WHERE shadow = 1 ORDER BY number")
	return collect(rows, err, "read versions", func(n *int64, rows *sql.Rows) error { return rows.Scan(n) })
}
