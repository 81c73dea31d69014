package judge

// recent is a bounded map that forgets keys not asked for lately. It holds at most 2 × most keys. The zero value is not
// ready. It is not safe for concurrent use.
type recent[K comparable, V any] struct {
	most     int
	now, was map[K]V // was is what now held when it was last full
}

func newRecent[K comparable, V any](most int) recent[K, V] {
	return recent[K, V]{most: most, now: make(map[K]V)}
}

func (r *recent[K, V]) get(key K) (V, bool) {
	if v, ok := r.now[key]; ok {
		return v, true
	}
	v, ok := r.was[key]
	if ok {
		r.put(key, v)
	}
	return v, ok
}

func (r *recent[K, V]) put(key K, v V) {
	if len(r.now) >= r.most {
		r.was, r.now = r.now, make(map[K]V)
	}
	r.now[key] = v
}
