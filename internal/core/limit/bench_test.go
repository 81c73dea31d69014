package limit

import "testing"

// What matching costs the decision by attributes, for one limit.
func BenchmarkApplies(b *testing.B) {
	attributes := []Attribute{{"tenant", "acme"}, {"endpoint", "GET /orders/17"}, {"ip", "10.1.2.3"}, {"user", "ann"}}
	for _, c := range []struct {
		name  string
		match []Match
	}{
		{"none", nil},
		{"exact", []Match{{"endpoint", []string{"GET /orders/17"}}}},
		{"exact-of-8", []Match{{"endpoint", []string{"a", "b", "c", "d", "e", "f", "g", "GET /orders/17"}}}},
		{"prefix", []Match{{"endpoint", []string{"GET /orders/*"}}}},
		{"any", []Match{{"user", []string{"*"}}}},
		{"cidr", []Match{{"ip", []string{"10.0.0.0/8"}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, err := Compile(Limit{Name: "x", Match: c.match})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if !r.Applies(attributes) {
					b.Fatal("does not apply")
				}
			}
		})
	}
	b.Run("value-ip24", func(b *testing.B) {
		r, err := Compile(Limit{Name: "x", By: []string{"ip/24"}})
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 0, 64)
		b.ReportAllocs()
		for b.Loop() {
			buf = r.AppendValue(buf[:0], 0, attributes)
		}
	})
}
