package policy

import (
	"slices"

	"github.com/f4ee788f/quota/internal/limit"
)

// SwitchFile is what a server's own file says about switches: it overrides what was set.
type SwitchFile struct {
	Mode   limit.Mode
	Moded  bool     // the file names a mode
	Denied []string // in order; besides those that were set
}

// ParseSwitches reads a switch file: a mapping of mode (normal, allow_all or
// shadow_all) and deny (tenants), either of which may be left out. An empty file says
// nothing. The error is Faults.
func ParseSwitches(file string, data []byte) (SwitchFile, error) {
	f := &faults{file: file}
	var s SwitchFile
	n := root(f, data)
	if n == nil || isNull(n) {
		return s, f.err()
	}
	for _, fd := range mapping(f, n, "the file") {
		switch fd.name {
		case "mode":
			v, ok := text(f, fd.node, "mode")
			if !ok {
				continue
			}
			if s.Mode, s.Moded = limit.ParseMode(v); !s.Moded {
				f.add(fd.line, "mode is %s; allowed are normal, allow_all and shadow_all", limit.Quote(v))
			}
		case "deny":
			ids, _ := texts(f, fd.node, "deny", limit.MaxDenied)
			for _, id := range ids {
				if !limit.ValidTenant(id) {
					f.add(fd.line, "%s is not a tenant's id; it has 1 to %d of the characters A-Z a-z 0-9 . _ : @ / -", limit.Quote(id), limit.MaxTenantLen)
				}
			}
			slices.Sort(ids)
			s.Denied = slices.Compact(ids)
		default:
			unknown(f, fd, "the file", "mode", "deny")
		}
	}
	if err := f.err(); err != nil {
		return SwitchFile{}, err
	}
	return s, nil
}

// Says reports whether the file overrides anything.
func (s *SwitchFile) Says() bool { return s.Moded || len(s.Denied) > 0 }

// Equal reports whether two files say the same.
func (s *SwitchFile) Equal(o SwitchFile) bool {
	return s.Mode == o.Mode && s.Moded == o.Moded && slices.Equal(s.Denied, o.Denied)
}

// Over returns what holds where sw was set: the file's mode if it names one, and the
// tenants of both, the file's first where they are too many together.
func (s *SwitchFile) Over(sw limit.Switches) limit.Switches {
	if s.Moded {
		sw.Mode = s.Mode
	}
	if len(s.Denied) > 0 {
		all := slices.Clone(s.Denied)
		for _, id := range sw.Denied {
			if _, there := slices.BinarySearch(s.Denied, id); !there && len(all) < limit.MaxDenied {
				all = append(all, id)
			}
		}
		slices.Sort(all)
		sw.Denied = all
	}
	return sw
}
