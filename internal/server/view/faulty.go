package view

import (
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/policy/policystore"
)

const (
	// faultyEvery is how often one server reads a faulty tenant again that is asked for. Its agents ask with every
	// renewal.
	faultyEvery = time.Second
	// knownFaulty bounds the faulty tenants that are remembered. Beyond it all are forgotten, and logged again.
	knownFaulty = cachedTenants
)

// faultyTenants are the tenants, by id, that could not be made out when they were last read.
type faultyTenants map[string]faultyTenant

type faultyTenant struct {
	err    error
	parent string    // which is known all the same
	again  time.Time // when it is read again, if it is asked for
}

// apart separates the tenants that can be made out from the faulty ones.
func apart(all []limit.Tenant, why policystore.FaultyTenants) (sound []limit.Tenant, faulty faultyTenants) {
	if len(why) == 0 {
		return all, nil
	}
	faulty = make(faultyTenants, len(why))
	for i := range all {
		t := &all[i]
		if err := why[t.ID]; err != nil {
			faulty[t.ID] = faultyTenant{err: err, parent: t.Parent}
			continue
		}
		sound = append(sound, *t)
	}
	return sound, faulty
}

// lastLocked is what a faulty tenant has in force, or why it has nothing. Its parent is the one stored now.
func (v *View) lastLocked(id string, now *InForce, f faultyTenant) Resolved {
	r := v.cache.last(id, now, f.err)
	r.parent, r.placed = f.parent, true
	return r
}

// faultyLocked notes that a tenant cannot be made out: it keeps what was in force.
func (v *View) faultyLocked(id string, f faultyTenant) {
	if _, ok := v.faulty[id]; !ok {
		if len(v.faulty) >= knownFaulty {
			clear(v.faulty)
		}
		v.log.Error("a tenant cannot be made out; it keeps what was in force", "tenant", id, "error", f.err)
	}
	f.again = time.Now().Add(faultyEvery)
	v.faulty[id] = f
	v.cache.ageOne(id)
	v.metrics.faultyTenants.Set(float64(len(v.faulty)))
}

// soundLocked notes that a tenant can be made out.
func (v *View) soundLocked(id string) {
	if _, ok := v.faulty[id]; !ok {
		return
	}
	delete(v.faulty, id)
	v.log.Info("a tenant can be made out again", "tenant", id)
	v.metrics.faultyTenants.Set(float64(len(v.faulty)))
}
