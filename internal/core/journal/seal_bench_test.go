package journal

import "testing"

// A record of one bucket, and one of a report.
func BenchmarkSeal(b *testing.B) {
	for what, size := range map[string]int{"100B": 100, "64KB": 64 << 10} {
		b.Run(what, func(b *testing.B) {
			s, body := newSeal(make([]byte, 32)), make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				s.next(body)
			}
		})
	}
}
