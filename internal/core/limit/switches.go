package limit

// MaxDenied is how many tenants the switches deny at most.
const MaxDenied = 1024

// MaxSwitchRevision is the highest revision that switches can have: what a double of Redis's Lua holds exactly.
const MaxSwitchRevision = 1<<53 - 1

// Mode overrides every decision.
type Mode uint8

const (
	ModeNormal    Mode = iota
	ModeAllowAll       // everything is admitted, and counted
	ModeShadowAll      // limits decide and count, and never deny
)

var modes = [...]string{ModeNormal: "normal", ModeAllowAll: "allow_all", ModeShadowAll: "shadow_all"}

// String returns the mode's word.
func (m Mode) String() string { return word(modes[:], int(m), "mode") }

// ParseMode returns the mode of that word.
func ParseMode(s string) (Mode, bool) {
	for m, w := range modes {
		if s == w {
			return Mode(m), true
		}
	}
	return ModeNormal, false
}

// Switches are the operators' overrides of every decision.
type Switches struct {
	Mode   Mode
	Denied []string // tenants whose requests are denied, at most MaxDenied
	// Revision rises with every change; of two copies the higher one holds. Servers begin
	// at the Unix milliseconds of the change, so that what was set later is higher even
	// where neither had heard of the other.
	Revision int64
}
