package server

import (
	"slices"
	"time"

	"github.com/f4ee788f/quota/internal/limit"
	"github.com/f4ee788f/quota/internal/policy"
)

const (
	// faultyEvery is how often a faulty tenant that is asked for is read again, by one server:
	// its agents ask with every renewal.
	faultyEvery = time.Second
	// knownFaulty bounds the faulty tenants that are remembered; beyond it all are forgotten,
	// and told of again.
	knownFaulty = cachedTenants
)

// faultyTenants are the tenants, by id, that could not be made out when they were last read.
type faultyTenants map[string]faultyTenant

type faultyTenant struct {
	err   error
	again time.Time // when it is read again, if it is asked for
}

// sound are the tenants that can be made out.
func sound(all []limit.Tenant, faulty policy.FaultyTenants) []limit.Tenant {
	return slices.DeleteFunc(all, func(t limit.Tenant) bool { return faulty[t.ID] != nil })
}

// faultyLocked notes that a tenant cannot be made out: it keeps what was in force.
func (v *view) faultyLocked(id string, err error) {
	if _, ok := v.faulty[id]; !ok {
		if len(v.faulty) >= knownFaulty {
			clear(v.faulty)
		}
		v.log.Error("a tenant cannot be made out; it keeps what was in force", "tenant", id, "error", err)
	}
	v.faulty[id] = faultyTenant{err, time.Now().Add(faultyEvery)}
	v.cache.ageOne(id)
	v.metrics.faultyTenants.Set(float64(len(v.faulty)))
}

// soundLocked notes that a tenant can be made out.
func (v *view) soundLocked(id string) {
	if _, ok := v.faulty[id]; !ok {
		return
	}
	delete(v.faulty, id)
	v.log.Info("a tenant can be made out again", "tenant", id)
	v.metrics.faultyTenants.Set(float64(len(v.faulty)))
}
