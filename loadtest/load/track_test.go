package load

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func TestDraw(t *testing.T) {
	const n = 1 << 18
	for _, shape := range []string{Uniform, Zipf} {
		w, err := weights(shape, 100)
		if err != nil {
			t.Fatal(err)
		}
		track := draw(w, n, 7)
		if !slices.Equal(track, draw(w, n, 7)) {
			t.Fatalf("%s: the same seed gave another track", shape)
		}
		got := make([]float64, 100)
		for _, tenant := range track {
			got[tenant]++
		}
		for i := range got {
			want := w[i] * n
			if math.Abs(got[i]-want) > 6*math.Sqrt(want) {
				t.Errorf("%s: tenant %d: got %.0f requests, want about %.0f", shape, i, got[i], want)
			}
		}
	}
	if _, err := weights("gauss", 1); !errors.Is(err, ErrShape) {
		t.Errorf("got error %v, want %v", err, ErrShape)
	}
	if w, err := weights(Zipf, 1); err != nil || draw(w, 4, 1)[3] != 0 {
		t.Errorf("one tenant: got %v, %v", w, err)
	}
}
