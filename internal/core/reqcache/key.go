package reqcache

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/limit"
)

const (
	maxAttributes = 8  // of a request that is remembered
	maxValue      = 64 // bytes of a value
	maxShapes     = 256
)

var seed = maphash.MakeSeed()

// Key is where a request is looked for. The zero Key is of one that is too large to be remembered.
type Key uint64

// KeyOf returns the key of a request. It depends on the values alone, for as long as the process lives.
func KeyOf(attributes []limit.Attribute) Key {
	if len(attributes) == 0 || len(attributes) > maxAttributes {
		return 0
	}
	h := uint64(len(attributes))
	for i := range attributes {
		v := attributes[i].Value
		if len(v) > maxValue {
			return 0
		}
		h = bits.RotateLeft64(h, 23)*0x9e37_79b9_7f4a_7c15 ^ maphash.String(seed, v)
	}
	return Key(h | 1)
}

// shape is the names of a request's attributes, which many requests share.
type shape struct{ names []string }

// shapeOf returns the shape of a request, the same one each time; nil where there are too many. The mutex is held.
func (c *Cache[V]) shapeOf(attributes []limit.Attribute) *shape {
	var b strings.Builder
	for i := range attributes {
		b.WriteString(attributes[i].Name)
		b.WriteByte(0)
	}
	key := b.String()
	if s := c.shapes[key]; s != nil {
		return s
	}
	if len(c.shapes) >= maxShapes {
		return nil
	}
	s := new(shape)
	for i := range attributes {
		s.names = append(s.names, strings.Clone(attributes[i].Name))
	}
	c.shapes[key] = s
	return s
}

// says keeps a request's values, each behind its length.
func (k *known[V]) says(attributes []limit.Attribute) {
	b := k.inline[:0]
	for i := range attributes {
		b = append(append(b, byte(len(attributes[i].Value))), attributes[i].Value...)
	}
	k.values = unsafe.String(&b[0], len(b))
}

// is reports whether a request says the same.
func (k *known[V]) is(attributes []limit.Attribute) bool {
	names, values := k.shape.names, k.values
	if len(names) != len(attributes) {
		return false
	}
	for i := range attributes {
		a := &attributes[i]
		n := len(a.Value)
		if n >= len(values) || int(values[0]) != n || values[1:1+n] != a.Value || a.Name != names[i] {
			return false
		}
		values = values[1+n:]
	}
	return true
}
