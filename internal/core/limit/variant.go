package limit

import "math/bits"

// Point is a tenant's place among all tenants for limits of that name: a fixed number below Micro. It depends
// only on the two names, so servers and agents agree without talking, on every machine and in every release.
// Tenants are spread evenly, and for each name anew.
func Point(name, tenant string) int64 {
	h := uint64(14695981039346656037) // FNV-1a; the separator can be in neither
	for _, s := range [...]string{name, "\x1f", tenant} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	// FNV's high bits hardly differ between ids that differ at their end.
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	point, _ := bits.Mul64(h, Micro)
	return int64(point)
}

// Variant returns the index of the tenant's variant, -1 for the limit itself.
//
// Variants take up the line of points in their order, each as much as its share. So a tenant keeps its variant
// while a later one is added, removed or changes its share. Growing the last variant takes tenants only from
// the limit itself. Growing another by some share moves at most that share of tenants at each later boundary.
func (l *Limit) Variant(tenant string) int {
	if len(l.Variants) == 0 {
		return -1
	}
	point := Point(l.Name, tenant)
	for i := range l.Variants {
		if point -= l.Variants[i].SharePPM; point < 0 {
			return i
		}
	}
	return -1
}

// Vary returns the limit as its i-th variant has it.
func (l *Limit) Vary(i int) Limit {
	v, out := &l.Variants[i], *l
	out.Variants = nil
	if v.Rate.Units > 0 {
		out.Rate = v.Rate
	}
	if v.Burst > 0 {
		out.Burst = v.Burst
	}
	if v.Slots > 0 {
		out.Slots = v.Slots
	}
	return out
}
