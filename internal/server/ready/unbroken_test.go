package ready

import (
	"testing"
	"testing/synctest"
	"time"
)

// What is said each second goes on, a late answer among them; what nothing was said of for longer has ended, whoever
// asks first, and begins anew.
func TestUnbroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unbroken
		wants := func(when string, want time.Duration) {
			t.Helper()
			if got := u.lasts(); got != want {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		wants("before anything was said", 0)
		u.goesOn()
		for _, seconds := range []int{1, 1, 5, 1, 4} {
			time.Sleep(time.Duration(seconds) * time.Second)
			u.goesOn()
		}
		wants("with an answer that took five seconds", 12*time.Second)
		time.Sleep(2 * time.Second)
		wants("before the next", 14*time.Second)
		time.Sleep(45 * time.Second) // all stand still
		wants("before anything is said again", 0)
		u.goesOn()
		wants("at once after that", 0)
		time.Sleep(3 * time.Second)
		wants("three seconds later", 3*time.Second)
		u.last = u.last.Add(time.Hour)
		wants("when the clock was set back", 0)
	})
}
