package load

import (
	"errors"
	"testing"
)

func TestDraw(t *testing.T) {
	for _, shape := range []string{Uniform, Zipf} {
		t.Run(shape, func(t *testing.T) {
			requests, err := draw(shape, 4, 100, 7)
			if err != nil {
				t.Fatal(err)
			}
			again, err := draw(shape, 4, 100, 7)
			if err != nil {
				t.Fatal(err)
			}
			byTenant := make([]int, 100)
			byGateway := make([]int, 4)
			for i, r := range requests {
				if again[i] != r {
					t.Fatalf("request %d of the same seed: got %v, want %v", i, again[i], r)
				}
				byTenant[r.tenant]++
				byGateway[r.gateway]++
			}
			for g, n := range byGateway {
				if n < track/4*9/10 || n > track/4*11/10 {
					t.Errorf("gateway %d: got %d of %d requests, want about a quarter", g, n, track)
				}
			}
			busiest := float64(byTenant[0]) / track
			if shape == Zipf && (busiest < 0.1 || busiest > 0.3) {
				t.Errorf("the busiest tenant has %.3f of all requests, want 0.1 to 0.3", busiest)
			}
			if shape == Uniform && (busiest < 0.008 || busiest > 0.012) {
				t.Errorf("tenant 0 has %.4f of all requests, want about 0.01", busiest)
			}
		})
	}
	if _, err := draw("gauss", 1, 1, 1); !errors.Is(err, ErrShape) {
		t.Errorf("got error %v, want %v", err, ErrShape)
	}
	one, err := draw(Zipf, 1, 1, 1)
	if err != nil || one[0] != (request{}) {
		t.Errorf("one tenant: got %v, %v", one[0], err)
	}
}
