package explore

import (
	"cmp"
	"math"
	"reflect"
	"slices"
)

// digest is a hash of all that decides what may happen from now on, and of all that was admitted.
func (w *world) digest() uint64 {
	d := digest{sum: 14695981039346656037}
	d.num(uint64(w.now))
	d.num(uint64(w.slowest))
	d.value(reflect.ValueOf(w.state))
	d.value(reflect.ValueOf(w.before))
	d.value(reflect.ValueOf(w.forgets))
	d.value(reflect.ValueOf(w.hist))
	for _, g := range w.agents {
		d.num(uint64(g.link))
		d.value(reflect.ValueOf(g.fate))
		d.num(uint64(g.wakes))
		d.num(uint64(g.tells))
		d.num(uint64(g.renewed))
		loop := reflect.ValueOf(g.loop).Elem()
		for _, name := range []string{"window", "strain", "calls", "contact", "forgot"} {
			d.value(loop.FieldByName(name))
		}
		d.num(uint64(g.loop.Waiting()))
		entry := reflect.ValueOf(g.entry).Elem()
		for _, name := range []string{"marks", "when", "Flying", "Ready", "Bucket"} {
			d.value(entry.FieldByName(name))
		}
		for _, r := range g.waits {
			d.num(uint64(r.until))
			d.num(uint64(r.waiter.Units))
		}
		for _, c := range g.calls {
			d.num(uint64(c.sent))
			d.num(uint64(c.executed))
			d.num(uint64(c.at))
			d.num(uint64(c.back))
			d.num(uint64(c.again))
			if c.over {
				d.num(1)
			}
			d.value(reflect.ValueOf(c.renewals))
			d.value(reflect.ValueOf(c.answer.Grant))
		}
	}
	return d.sum
}

type digest struct{ sum uint64 }

func (d *digest) num(v uint64) { d.sum = (d.sum ^ v ^ v>>29) * 1099511628211; d.sum ^= d.sum >> 32 }

// skipped are of types that are the same all the time, or lead out of the bucket.
var skipped = map[string]bool{"Terms": true, "Rule": true, "trip": true}

func (d *digest) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			d.num(1)
		} else {
			d.num(2)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.num(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.num(v.Uint())
	case reflect.Float32, reflect.Float64:
		d.num(math.Float64bits(v.Float()))
	case reflect.String:
		for _, b := range []byte(v.String()) {
			d.num(uint64(b))
		}
	case reflect.Pointer:
		if v.IsNil() || skipped[v.Type().Elem().Name()] {
			d.num(3)
			return
		}
		d.value(v.Elem())
	case reflect.Struct:
		if n := v.NumField(); n == 3 && v.Field(2).Kind() == reflect.UnsafePointer { // atomic.Pointer[T]: [0]*T first
			d.value(reflect.NewAt(v.Field(0).Type().Elem().Elem(), v.Field(2).UnsafePointer()))
			return
		}
		for i := range v.NumField() {
			d.value(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		d.num(uint64(v.Len()))
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, k := range keys {
			d.value(k)
			d.value(v.MapIndex(k))
		}
	case reflect.Func, reflect.Interface:
	default:
		panic("explore: cannot tell apart states with a " + v.Type().String())
	}
}
