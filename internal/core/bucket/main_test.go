package bucket

import (
	"os"
	"reflect"
	"testing"
)

// Nobody writes what buckets have that have nothing of their own: it would be every other's.
func TestMain(m *testing.M) {
	code := m.Run()
	if none != (rare{}) || !reflect.ValueOf(&unshared).Elem().IsZero() {
		println("a bucket wrote what all have that have nothing of their own")
		code = 1
	}
	os.Exit(code)
}

// due returns the units that came back to a bucket and are not folded yet.
func due(b *Bucket) int64 { return b.stock.due() }

// collect is Collect of what is of interest, and has room.
func collect(b *Bucket) (admitted, denied int64) {
	defer b.enter().leave()
	c := b.collectLocked()
	b.unrowed, b.unrowedDenied = 0, 0
	return c.Admitted, c.Denied
}
