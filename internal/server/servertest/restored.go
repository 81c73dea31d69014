package servertest

import (
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/policy"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

// Restored is a policy store in whose place another can be put, as where its database is restored from a backup.
type Restored struct{ policystore.Store }

// StoreOf is a store that a text was applied to at a time, after another.
func StoreOf(t *testing.T, at time.Time, texts ...string) policystore.Store {
	t.Helper()
	_, _, store := OnSQLite(t, func() time.Time { return at })
	for _, text := range texts {
		doc, err := policy.Parse("quota.yaml", []byte(text))
		if err == nil {
			_, err = store.Apply(t.Context(), "ann", doc, 0, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return store
}
