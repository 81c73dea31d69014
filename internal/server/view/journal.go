package view

import "github.com/f4ee788f/quota/internal/core/limit"

// change is tenants that changed after one change number and up to another.
type change struct {
	after, through int64
	tenants        []limit.Tenant // that can be made out: the others keep what they have
	faulty         faultyTenants  // the others
}

// journal is the latest changes of tenants, for streams that have not been sent
// them yet. Its owner's lock guards it.
type journal struct {
	floor   int64 // changes up to here are not kept
	changes []change
	kept    int
}

func (j *journal) restart(floor int64) { *j = journal{floor: floor} }

func (j *journal) add(c change) {
	j.changes = append(j.changes, c)
	j.kept += max(1, len(c.tenants))
	for j.kept > keptChanges && len(j.changes) > 1 {
		j.kept -= max(1, len(j.changes[0].tenants))
		j.floor = j.changes[0].through
		// Streams may be reading the slice: it is shortened, never written to.
		j.changes = j.changes[1:]
	}
}

// head is the number through which the journal goes.
func (j *journal) head() int64 {
	if n := len(j.changes); n > 0 {
		return j.changes[n-1].through
	}
	return j.floor
}

// since returns the changes after a number; not ok when some may be missing.
func (j *journal) since(after int64) (changes []change, ok bool) {
	if after < j.floor || after > j.head() {
		return nil, false
	}
	for i, c := range j.changes {
		if c.through > after {
			return j.changes[i:len(j.changes):len(j.changes)], true
		}
	}
	return nil, true
}

// unchanged reports whether a tenant surely has not changed after a number.
func (j *journal) unchanged(id string, after int64) bool {
	changes, ok := j.since(after)
	if !ok {
		return false
	}
	for _, c := range changes {
		for i := range c.tenants {
			if c.tenants[i].ID == id {
				return false
			}
		}
	}
	return true
}

// parentsOf is the parents of changed tenants, by their ids.
func parentsOf(changes []change) map[string]string {
	parents := make(map[string]string)
	for _, c := range changes {
		for i := range c.tenants {
			parents[c.tenants[i].ID] = c.tenants[i].Parent
		}
		for id, f := range c.faulty {
			parents[id] = f.parent
		}
	}
	return parents
}
