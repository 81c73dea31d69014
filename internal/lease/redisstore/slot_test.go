package redisstore

import "testing"

// The slots are those that a real cluster says.
func TestSlotOf(t *testing.T) {
	for key, want := range map[string]int{"": 0, "foo": 12182, "{foo}": 12182, "x{foo}y{bar}": 12182, "{}foo": 9500, "123456789": 0x31c3} {
		if got := slotOf(key); got != want {
			t.Errorf("%q: got %d, want %d", key, got, want)
		}
	}
}
