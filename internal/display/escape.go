package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden reports what a terminal obeys instead of showing: controls, and characters that change the direction of text.
func Hidden(r rune) bool {
	switch {
	case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069: // bidi
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph
		return true
	}
	return unicode.IsControl(r)
}

// Escape writes hidden characters as \uXXXX, as JSON does, except those in keep. Bytes that are no text become \xXX.
func Escape(s, keep string) string {
	if strings.IndexFunc(s, Hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Hidden(r) && !strings.ContainsRune(keep, r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}
