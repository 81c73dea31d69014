package wire

import (
	"strconv"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Lists go on by page tokens, as AIP-158 has them: the answer's next_page_token is the next request's page_token, and empty
// at the end. The token of a list by number is the last number of its page.

// PageToken is the token of the page after one whose last element has the number; 0 for no more.
func PageToken(last int64) string {
	if last == 0 {
		return ""
	}
	return strconv.FormatInt(last, 10)
}

// PageNumber is the number in a token that Check has accepted; 0 from the beginning.
func PageNumber(token string) int64 {
	n, _ := strconv.ParseInt(token, 10, 64)
	return n
}

func numberedPage(size int32, token string) error {
	if n := PageNumber(token); token != "" && (n < 1 || n > maxCount) {
		return pageToken(token)
	}
	return ranged(bound{"page_size", int64(size), 0, MaxPage})
}

func pageToken(token string) error {
	return invalid("page_token is %s; it must be the next_page_token of the answer before, or empty", limit.Quote(token))
}
