package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// parsePercent reads 0% to 100% with at most four decimals, as parts per million.
func parsePercent(s string) (int64, bool) { return parsePercentUpTo(s, limit.Micro) }

// parsePercentUpTo reads a percentage of at most so many parts per million.
func parsePercentUpTo(s string, most int64) (int64, bool) {
	digits, ok := strings.CutSuffix(s, "%")
	whole, frac, dot := strings.Cut(digits, ".")
	if !ok || whole == "" || len(whole) > 6 || dot && frac == "" || len(frac) > 4 || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 4-len(frac)), 10, 64)
	return n, err == nil && n <= most
}

// percent writes parts per million as parsePercent reads them.
func percent(ppm int64) string {
	s := strconv.FormatInt(ppm/10_000, 10)
	if frac := ppm % 10_000; frac != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%04d", frac), "0")
	}
	return s + "%"
}

// parseSpan reads a duration of whole milliseconds: none (0s), or up to most.
func parseSpan(s string, most time.Duration) (time.Duration, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0 && d <= most && d%time.Millisecond == 0
}

// span writes a duration as parseSpan reads it; empty for none.
func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return limit.ShortDuration(d)
}
