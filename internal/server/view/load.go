package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// loadShadow returns the rules of a shadow version, nil for none. A shadow that this server cannot use counts as none:
// the policy in force must not depend on a trial.
func (v *View) loadShadow(ctx context.Context, number int64) (*limit.Rules, error) {
	if number == 0 {
		v.log.Info("no shadow policy is tried")
		return nil, nil
	}
	rules, _, err := v.loadRules(ctx, number)
	switch {
	case errors.Is(err, policystore.ErrUnavailable), ctx.Err() != nil:
		return nil, err
	case err != nil:
		v.log.Error("the shadow policy is not tried by this server", "version", number, "error", err)
		return nil, nil
	}
	v.log.Info("shadow policy tried", "version", number)
	return rules, nil
}

// loadRules returns a version's rules, and its document; 0 is the one in force.
func (v *View) loadRules(ctx context.Context, number int64) (*limit.Rules, *policy.Document, error) {
	version, err := v.store.Version(ctx, number)
	if err != nil {
		return nil, nil, err
	}
	doc, err := policy.Parse(version.File, []byte(version.Text))
	if err != nil {
		return nil, nil, fmt.Errorf("policy version %d cannot be read by this server: %w", version.Number, err)
	}
	rules, err := limit.CompilePolicy(doc.Policy(version.Number))
	if err != nil {
		return nil, nil, fmt.Errorf("policy version %d cannot be used by this server: %w", version.Number, err)
	}
	return rules, doc, nil
}

// loadKeys reads the keys that are good, page by page; changes is how often keys ever changed.
func (v *View) loadKeys(ctx context.Context, changes int64) error {
	var all []policystore.Key
	for after := ""; ; {
		keys, err := v.store.Keys(ctx, after, policystore.MaxPage, true)
		if err != nil {
			return err
		}
		all = append(all, keys...)
		if len(keys) < policystore.MaxPage {
			break
		}
		after = keys[len(keys)-1].ID
	}
	v.keys.Load(all, changes > 0)
	return nil
}

// loadChanges reads the tenants that changed after a number. If they are too many to send one by one, it reports an
// overrun instead.
func (v *View) loadChanges(ctx context.Context, after int64, heads *policystore.Heads) (changes []change, overrun bool, err error) {
	for n := 0; n < keptChanges; {
		tenants, through, err := v.store.TenantChanges(ctx, after, changePage)
		var faulty policystore.FaultyTenants
		if err != nil && !errors.As(err, &faulty) {
			return nil, false, err
		}
		if through > after {
			c := change{after: after, through: through}
			c.tenants, c.faulty = apart(tenants, faulty)
			changes = append(changes, c)
		}
		n += len(tenants)
		after = through
		if len(tenants) < changePage {
			heads.Tenants = after
			return changes, false, nil
		}
	}
	return nil, true, nil
}
