package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ValidName reports whether s can name a limit, a plan, a meter, an attribute or
// a gateway: 1 to MaxNameLen bytes of [A-Za-z0-9._-].
func ValidName(s string) bool { return valid(s, MaxNameLen, "._-") }

// ValidTenant reports whether s can be a tenant's id: 1 to MaxTenantLen bytes of [A-Za-z0-9._:@/-]. Elements
// between slashes may not be empty, "." or "..": a URL's path would lose them, and name another tenant.
func ValidTenant(s string) bool { return valid(s, MaxTenantLen, "._:@/-") && CleanSegments(s) }

// TenantForm says what ValidTenant asks for.
const TenantForm = "1 to 128 bytes of [A-Za-z0-9._:@/-], without empty, . or .. elements between slashes"

// CleanSegments reports whether no element between slashes is empty, "." or "..".
func CleanSegments(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// ValidAgent reports whether s can be an agent's id: 1 to MaxAgentLen bytes of [A-Za-z0-9._:-].
func ValidAgent(s string) bool { return valid(s, MaxAgentLen, "._:-") }

func valid(s string, most int, others string) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// ValidValue reports whether s can be an attribute's value in a bucket's key and in the ledger. It must have at
// most MaxValueLen bytes of UTF-8 without control characters.
func ValidValue(s string) bool {
	if len(s) > MaxValueLen {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == 0x7f {
			return false
		}
	}
	return utf8.ValidString(s)
}

// Value returns s if it is valid as an attribute's value. Otherwise it returns the clean beginning of s with a
// hash of the whole. So a value that is too long or broken still has a bucket of its own.
func Value(s string) string {
	if ValidValue(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	const keep = 128
	var b strings.Builder
	for _, r := range s[:min(len(s), keep)] {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String() + "#" + hex.EncodeToString(sum[:16])
}

// Quote quotes s for a message and keeps it short.
func Quote(s string) string { return strconv.Quote(clip(s)) }
