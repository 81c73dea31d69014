package reqcache

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

// threadTime is what this thread has had of a processor: what else the machine does is not in it.
func threadTime(t *testing.T) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// No request does the work of growth: while a million come and are remembered, the table is replaced some ten times, and none
// of them takes long. That none waits either is TestNobodyWaitsForAWriter.
func TestGrowthIsNoRequestsWork(t *testing.T) {
	unraced.Only(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := New[int]()
	const requests, each = 1_000_000, 50
	var longest time.Duration
	for i := 0; i < requests; i += each {
		from := threadTime(t)
		for j := range each {
			r := request("tenant", "b", "user", fmt.Sprint(i+j))
			if v, _, _ := c.Get(KeyOf(r), r); v == nil {
				put(c, r, i+j+1)
			}
		}
		longest = max(longest, threadTime(t)-from)
		if i%10_000 == 0 {
			settled(c)
		}
	}
	t.Logf("%d requests took %v at most; %d are known", each, longest, count(c))
	if n := count(c); n < requests/2 {
		t.Errorf("only %d are known: this proves little", n)
	}
	const most = 20 * time.Millisecond // the collector's part of what they allocate is in it; growth takes 200
	if longest > most {
		t.Errorf("%d requests took %v, want at most %v", each, longest, most)
	}
}
