package agent

import "unsafe"

// entryOf is an entry and its values in one object, which costs them neither a pointer nor a line of their own.
type entryOf[V any] struct {
	Entry
	values V
}

// longValues is the length of an entry whose values are a string of their own.
const longValues = 255

// entryWith returns an entry of those values.
func entryWith(values []byte) (e *Entry) {
	switch n := len(values); {
	case n == 0:
		return new(Entry)
	case n <= 16:
		e = &new(entryOf[[16]byte]).Entry
	case n <= 32:
		e = &new(entryOf[[32]byte]).Entry
	case n <= 48:
		e = &new(entryOf[[48]byte]).Entry
	case n <= 80:
		e = &new(entryOf[[80]byte]).Entry
	default:
		long := &entryOf[string]{values: string(values)}
		long.length = longValues
		return &long.Entry
	}
	e.length = uint8(len(values))
	copy(unsafe.Slice((*byte)(e.behind()), len(values)), values)
	return e
}

// behind is where an entry's values are.
func (e *Entry) behind() unsafe.Pointer { return unsafe.Add(unsafe.Pointer(e), unsafe.Sizeof(*e)) }

// values are what tells the bucket from others of its limit, joined by valueSep.
func (e *Entry) values() string {
	switch e.length {
	case 0:
		return ""
	case longValues:
		return *(*string)(e.behind())
	}
	return unsafe.String((*byte)(e.behind()), int(e.length))
}
