package rest

import (
	"net/http/httptest"
	"testing"
)

// A file is named for its format, and one that was asked for without a format is CSV.
func TestAFileIsNamedForItsFormat(t *testing.T) {
	for query, want := range map[string]string{"": "csv", "?format=csv": "csv", "?format=jsonl": "jsonl", "?format=parquet&by=tenant": "parquet"} {
		req, err := downloadRequest(httptest.NewRequestWithContext(t.Context(), "GET", "/v1/usage/export"+query, nil))
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if got := formatOf(req); got != want {
			t.Errorf("%s: got a file of %q, want %q", query, got, want)
		}
	}
}
