package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/agent"
	"github.com/f4ee788f/quota/internal/limit"
)

const (
	// fileEvery is how often the switch file is read: a change is in force well within a second.
	fileEvery = 250 * time.Millisecond
	// maxSwitchFile is the size of a switch file, in bytes: room for all tenants that it may deny.
	maxSwitchFile = 256 << 10
)

// override is what the switch file says. It wins over the server's switches: its mode, if
// it names one, replaces theirs, and whom it denies is denied besides those whom they deny. So
// a file can end another's mode (mode: normal), and nobody else's denial.
type override struct {
	mode   limit.Mode
	moded  bool     // the file names a mode
	denied []string // sorted
}

func (o override) equal(p override) bool {
	return o.mode == p.mode && o.moded == p.moded && slices.Equal(o.denied, p.denied)
}

// over returns what holds where the server says sw.
func (o override) over(sw limit.Switches) limit.Switches {
	if o.moded {
		sw.Mode = o.mode
	}
	if len(o.denied) > 0 {
		sw.Denied = append(slices.Clone(o.denied), sw.Denied...)
		slices.Sort(sw.Denied)
		sw.Denied = slices.Compact(sw.Denied)
	}
	return sw
}

// readSwitchFile reads the file. One that is not there, or that is empty, says nothing.
func readSwitchFile(path string) (override, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return override{}, nil
	}
	if err != nil {
		return override{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxSwitchFile+1))
	if err != nil {
		return override{}, err
	}
	if len(data) > maxSwitchFile {
		return override{}, fmt.Errorf("%s: more than %d bytes", path, maxSwitchFile)
	}
	o, err := parseSwitches(data)
	if err != nil {
		return override{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// parseSwitches reads JSON, or the YAML that a person writes for it: a mapping of mode and deny.
// What else YAML can say is refused rather than guessed, so that the SDK needs no library for it.
func parseSwitches(data []byte) (override, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var says struct {
		Mode *string  `json:"mode"`
		Deny []string `json:"deny"`
	}
	if t := bytes.TrimSpace(data); len(t) > 0 && t[0] == '{' {
		d := json.NewDecoder(bytes.NewReader(t))
		d.DisallowUnknownFields()
		if err := d.Decode(&says); err != nil {
			return override{}, fmt.Errorf("not JSON of mode and deny: %w", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return override{}, errors.New("something follows the JSON object")
		}
	} else if err := parseLines(string(data), &says.Mode, &says.Deny); err != nil {
		return override{}, err
	}
	var o override
	if says.Mode != nil {
		if o.mode, o.moded = limit.ParseMode(*says.Mode); !o.moded {
			return override{}, fmt.Errorf("mode is %s; allowed are normal, allow_all and shadow_all", limit.Quote(*says.Mode))
		}
	}
	if len(says.Deny) > limit.MaxDenied {
		return override{}, fmt.Errorf("deny names %d tenants; at most %d", len(says.Deny), limit.MaxDenied)
	}
	for _, id := range says.Deny {
		if !limit.ValidTenant(id) {
			return override{}, fmt.Errorf("deny names %s, which is not a tenant's id", limit.Quote(id))
		}
	}
	slices.Sort(says.Deny)
	o.denied = slices.Compact(says.Deny)
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

// followFile reads the switch file until ctx ends, and sends what it says when that changed.
func (c *Client) followFile(ctx context.Context, said override, to chan<- fileEvent) {
	t := time.NewTicker(fileEvery)
	defer t.Stop()
	fault := ""
	last, lastErr := said, error(nil)
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		e := fileEvent{}
		says, err := readSwitchFile(c.cfg.switchFile)
		// Writing a file empties it first: what it says counts once it was read twice.
		settled := says.equal(last) && (err == nil) == (lastErr == nil)
		last, lastErr = says, err
		switch {
		case !settled:
			continue
		case err != nil && err.Error() == fault, err == nil && fault == "" && says.equal(said):
			continue
		case err != nil:
			e.says, e.fault, fault = said, err, err.Error()
		default:
			e.says, said, fault = says, says, ""
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return
		}
	}
}

// fileEvent is what the switch file says now, or what it said before it had the fault.
type fileEvent struct {
	says  override
	fault error
}

func (l *loop) onFile(e fileEvent) {
	l.fault = e.fault
	if e.fault != nil {
		l.c.log.Error("switch file not in force; what it said before stays", "error", e.fault)
		return
	}
	l.local = e.says
	l.flip("switch file read")
}

// flip puts the switches in force: the file's over the server's.
func (l *loop) flip(why string) {
	c, sw := l.c, l.local.over(l.remote)
	if sw.Mode != limit.ModeNormal {
		c.special.Store(true)
	}
	c.reg.Switch(sw)
	c.special.Store(c.closed.Load() || sw.Mode != limit.ModeNormal)
	c.unsettleAll()
	// Who waits, perhaps for long, is decided anew.
	c.reg.Each(func(e *agent.Entry) {
		if e.Urgent() {
			l.urgent = append(l.urgent, e)
		}
	})
	for _, e := range l.urgent {
		serve(e.Dismiss())
	}
	clear(l.urgent)
	l.urgent = l.urgent[:0]
	c.log.Info(why, "mode", sw.Mode.String(), "denied_tenants", len(sw.Denied))
}
