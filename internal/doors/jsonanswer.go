package doors

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/f4ee788f/quota/internal/core/headers"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/pkg/client"
	"github.com/f4ee788f/quota/pkg/client/httpquota"
)

// mostDecision is more than the bytes that a decision takes as JSON.
const mostDecision = 512

// appendDecisions writes the answer of /v1/decide.
func appendDecisions(b []byte, decisions []client.Decision, unknown int) []byte {
	b = append(b, `{"decisions":[`...)
	for i := range decisions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDecision(b, decisions[i], unknown)
	}
	return append(b, "]}\n"...)
}

// appendDecision writes a decision. unknown replaces the status of unknown tenants; 0 does not.
func appendDecision(b []byte, d client.Decision, unknown int) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	reason := d.Reason.String()
	b = appendText(append(b, `,"reason":`...), reason)
	b = append(b, `,"status":`...)
	row := headers.Row{Status: http.StatusOK}
	if !d.Allowed {
		row = headers.RowOf(reason)
		row.Status = httpquota.StatusWith(d, unknown)
	}
	b = strconv.AppendInt(b, int64(row.Status), 10)
	if row.Detail != "" {
		b = appendText(append(b, `,"detail":`...), row.Detail)
	}
	if t := d.Details(); t.Limit != "" {
		b = appendText(append(b, `,"limit":`...), t.Limit)
		if t.Cost != "" {
			b = appendText(append(b, `,"cost":`...), t.Cost)
		}
		b = strconv.AppendInt(append(b, `,"quota":`...), max(t.Quota, 0), 10)
		b = appendSeconds(append(b, `,"window_seconds":`...), t.Window)
		b = strconv.AppendInt(append(b, `,"remaining":`...), max(t.Remaining, 0), 10)
		b = appendSeconds(append(b, `,"reset_seconds":`...), t.Reset)
	}
	after := time.Duration(0)
	if row.Waits {
		if after = d.RetryAfter; after <= 0 {
			after = time.Second // when is not known: as Retry-After says
		}
	}
	return append(appendSeconds(append(b, `,"retry_after_seconds":`...), after), '}')
}

// appendText writes a string.
func appendText(b []byte, s string) []byte {
	if limit.ValidName(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return append(b, q...)
}

// appendSeconds writes a time as a number of seconds, in microseconds rounded up, without zeros at its end.
func appendSeconds(b []byte, d time.Duration) []byte {
	if d <= 0 {
		return append(b, '0')
	}
	us := int64((d-1)/time.Microsecond) + 1
	b = strconv.AppendInt(b, us/1e6, 10)
	fraction := us % 1e6
	if fraction == 0 {
		return b
	}
	b = append(b, '.')
	for unit := int64(1e5); fraction > 0; unit /= 10 {
		b = append(b, byte('0'+fraction/unit))
		fraction %= unit
	}
	return b
}
