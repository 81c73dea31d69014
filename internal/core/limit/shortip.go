package limit

import (
	"net/netip"
	"strings"
)

// BeginsNoAddress reports whether a pattern of the attribute ip is a prefix that looks like an address's, but
// begins no address's shortest form: 2001:0db8*, 10.0.00*.
func BeginsNoAddress(pattern string) bool {
	p, ok := strings.CutSuffix(pattern, "*")
	if !ok || !mayBeIP(p) || !strings.ContainsAny(p, ".:") {
		return false
	}
	p = strings.ToLower(p)
	// The prefix is completed in every way that matters. Ones stand for numbers that are not zero. Zeros are
	// left out at the end, so that those within the prefix stay.
	for _, digit := range []string{"", "1"} {
		for _, sep := range []string{":1", ".1"} {
			for n := range 8 {
				for _, end := range []string{"", ":", "::"} {
					a, err := netip.ParseAddr(p + digit + strings.Repeat(sep, n) + end)
					if err == nil && strings.HasPrefix(a.Unmap().String(), p) {
						return false
					}
				}
			}
		}
	}
	return true
}
