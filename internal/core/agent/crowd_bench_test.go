package agent

import (
	"fmt"
	"math/rand"
	"runtime"
	"testing"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// BenchmarkCrowded decides for many gateways in turn, some requests of each at a time, as a load test in one process does:
// what one of them reads is in no near cache by the time that it is asked again.
func BenchmarkCrowded(b *testing.B) {
	const gateways, turn, draws = 100, 128, 1 << 18
	for _, n := range []int{1000, 10_000} {
		requests := make([][]limit.Attribute, n)
		for i := range requests {
			requests[i] = attributesOf("user", fmt.Sprintf("customer-%08x-%04x", uint32(i)*2654435761, i&0xffff))
		}
		var all []*Registry
		for range gateways {
			r, set, _ := many(b, n)
			for _, i := range rand.Perm(n) {
				e, err := r.Touch(set, &set.List, 0, requests[i], 1)
				if err != nil {
					b.Fatal(err)
				}
				e.at.tokens.Store(1 << 50)
				r.Remember(requests[i], set, []*Item{&set.Items[0]}, []*Entry{e}, 0)
			}
			all = append(all, r)
		}
		zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.1, 1, uint64(n-1))
		track := make([]uint16, draws)
		for i := range track {
			track[i] = uint16(zipf.Uint64())
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g, at := 0, 0
			for i := range b.N {
				if i%turn == 0 {
					g, at = (g+1)%gateways, at+12345
				}
				at = (at + 1) % draws
				if _, c, _ := recall(all[g], requests[track[at]]); !c.None() {
					c.Take(1)
				}
			}
		})
		b.Run(fmt.Sprint(n, ", sixteen at hand"), func(b *testing.B) {
			const atHand = 16
			var keys [atHand]Key
			g, at := 0, 0
			for i := 0; i < b.N; i += atHand {
				if i%turn == 0 {
					g, at = (g+1)%gateways, at+12345
				}
				for j := range keys {
					keys[j] = KeyOf(requests[track[(at+j)%draws]])
					all[g].Near(keys[j])
				}
				for j := range keys {
					if _, c, _ := all[g].Recall(keys[j], requests[track[(at+j)%draws]]); !c.None() {
						c.Take(1)
					}
				}
				at = (at + atHand) % draws
			}
		})
		runtime.KeepAlive(all)
	}
}
