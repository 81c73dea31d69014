package limit

import (
	"path"
	"strings"
)

// CleanPath is a decoded URL path as limits match it, without empty, "." and ".." elements. Servers take all
// spellings of a path for one, so a limit on /orders must hold for //orders and /x/../orders too. A slash at
// the end stays. A path that is clean already is returned as it is.
func CleanPath(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		if len(p) == len(clean)+1 && strings.HasPrefix(p, clean) {
			return p
		}
		return clean + "/"
	}
	return clean
}
