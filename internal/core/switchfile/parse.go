package switchfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/f4ee788f/quota/internal/core/limit"
)

// Parse reads JSON, or the YAML that a person writes for it: a mapping of mode and deny.
// What else YAML can say is refused rather than guessed, so that the SDK needs no library for it. An empty file says nothing.
func Parse(data []byte) (Says, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var says struct {
		Mode *string  `json:"mode"`
		Deny []string `json:"deny"`
	}
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(t))
		d.DisallowUnknownFields()
		if err := d.Decode(&says); err != nil {
			return Says{}, fmt.Errorf("not JSON of mode and deny: %w", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return Says{}, errors.New("something follows the JSON object")
		}
	} else if err := parseLines(string(data), &says.Mode, &says.Deny); err != nil {
		return Says{}, err
	}
	var o Says
	if says.Mode != nil {
		if o.Mode, o.Moded = limit.ParseMode(*says.Mode); !o.Moded {
			return Says{}, fmt.Errorf("mode is %s; allowed are normal, allow_all and shadow_all", limit.Quote(*says.Mode))
		}
	}
	if len(says.Deny) > limit.MaxDenied {
		return Says{}, fmt.Errorf("deny names %d tenants; at most %d", len(says.Deny), limit.MaxDenied)
	}
	for _, id := range says.Deny {
		if !limit.ValidTenant(id) {
			return Says{}, fmt.Errorf("deny names %s, which is not a tenant's id: it has %s", limit.Quote(id), limit.TenantForm)
		}
	}
	slices.Sort(says.Deny)
	o.Denied = slices.Compact(says.Deny)
	return o, nil
}

// parseLines reads "mode: word", "deny: [a, b]", and "deny:" with a "- a" on each line.
func parseLines(text string, mode **string, deny *[]string) error {
	seen, listing := make(map[string]bool), false
	for i, line := range strings.Split(text, "\n") {
		bad := func(what string) error { return fmt.Errorf("line %d: %s", i+1, what) }
		line = strings.TrimRight(line, " \t\r")
		if at := strings.Index(" "+line, " #"); at >= 0 {
			line = strings.TrimRight(line[:at], " \t")
		}
		if line == "" || line == "---" && len(seen) == 0 {
			continue
		}
		if item, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "- "); ok && listing {
			v, ok := scalar(item)
			if !ok {
				return bad("a list holds tenants' ids, one on each line")
			}
			*deny = append(*deny, v)
			continue
		}
		listing = false
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || key != "mode" && key != "deny":
			return bad("neither mode: nor deny: begins here, at the beginning of the line")
		case seen[key]:
			return bad(key + " is said twice")
		}
		seen[key] = true
		switch {
		case key == "mode":
			v, ok := scalar(value)
			if !ok {
				return bad("mode is one word")
			}
			*mode = &v
		case value == "":
			listing = true
		case strings.HasPrefix(value, "["):
			inside, ok := strings.CutSuffix(value[1:], "]")
			if !ok {
				return bad("a list ends with ] on its line")
			}
			for item := range strings.SplitSeq(inside, ",") {
				v, ok := scalar(item)
				if !ok && strings.TrimSpace(inside) != "" {
					return bad("a list holds tenants' ids with commas between")
				}
				if ok {
					*deny = append(*deny, v)
				}
			}
		default:
			v, ok := scalar(value)
			if !ok {
				return bad("deny is a tenant's id or a list of them")
			}
			*deny = []string{v}
		}
	}
	return nil
}

// scalar is a plain or quoted word.
func scalar(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		s = s[1 : len(s)-1]
	}
	return s, s != "" && !strings.ContainsAny(s, "\"'[]{},&*!|>%` \t\\")
}
