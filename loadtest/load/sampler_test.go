package load

import "testing"

// Each place of a chunk is timed as often as the others, and one of 1,024 requests in all, whatever a chunk's length.
func TestSamplesAreOfEveryPlace(t *testing.T) {
	for _, n := range []int{1, 18, 500, 512} {
		var s sampler
		places, samples, last := make([]int, n), 0, -ahead
		const requests = 1 << 26
		for from := 0; from < requests; from += n {
			for i := s.next(n); i < n; i = s.after(i, n) {
				if from+i-last < ahead {
					t.Fatalf("chunks of %d: two of those that are written together are timed", n)
				}
				last = from + i
				places[i]++
				samples++
			}
		}
		if want := requests / sampleEvery; samples < want*95/100 || samples > want*105/100 {
			t.Errorf("chunks of %d: %d of %d requests are timed, want %d", n, samples, requests, want)
		}
		for i, got := range places {
			if want := float64(samples) / float64(n); float64(got) < want/3 || float64(got) > want*3+9 {
				t.Errorf("chunks of %d: place %d is timed %d times of %d", n, i, got, samples)
			}
		}
	}
}
