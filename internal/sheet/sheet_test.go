package sheet

import "testing"

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "-": "-", "acme": "acme", "a=1": "a=1", "/v1": "/v1", `=HYPERLINK("x")`: `'=HYPERLINK("x")`, "+1": "'+1", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)",
		"\t=1": "'\t=1", "\r=1": "'\r=1", "'=1": "''=1",
	} {
		if got := Text(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
