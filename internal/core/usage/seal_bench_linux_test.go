package usage

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/f4ee788f/quota/internal/core/journal"
)

// threadTime is how long a processor has run this thread, in nanoseconds: others may share the machine.
func threadTime(b *testing.B) int64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		b.Fatal(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}

// A second's seal of buckets that each counted something since the last, and of some that did not.
func BenchmarkSeal(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		for _, idle := range []bool{false, true} {
			b.Run(fmt.Sprintf("buckets=%d/idle=%v", n, idle), func(b *testing.B) {
				d, err := journal.Open(b.TempDir(), []byte("a secret of this test"))
				if err != nil {
					b.Fatal(err)
				}
				life, err := d.Begin("gw", 5)
				if err != nil {
					b.Fatal(err)
				}
				r := bucketsOf(NewJournal(life))
				for i := range n {
					r.touch(fmt.Sprint("user-", i), 1)
				}
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				size, took := life.Size(), int64(0)
				for b.Loop() {
					if !idle {
						b.StopTimer()
						for _, f := range r.of {
							f.Admit(10)
						}
						b.StartTimer()
					}
					began := threadTime(b)
					r.seal()
					took += threadTime(b) - began
				}
				b.ReportMetric(float64(took)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(life.Size()-size)/float64(b.N), "log-B/op")
			})
		}
	}
}
