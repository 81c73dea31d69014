package quotactl

import (
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What --help says of a flag can be read by itself: its value has a name of its own rather than a type of Go, and
// its use is a sentence that does not begin in the middle.
func TestHelpOfFlags(t *testing.T) {
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			each(sub)
		}
		if short := []rune(cmd.Short); cmd.HasParent() && (len(short) == 0 || !unicode.IsUpper(short[0])) {
			t.Errorf("%s: %q does not begin a sentence", cmd.CommandPath(), cmd.Short)
		}
		check := func(f *pflag.Flag) {
			name, use := pflag.UnquoteUsage(f)
			switch f.Value.Type() {
			case "bool":
				if name != "" {
					t.Errorf("%s --%s is a switch, and names a value %s", cmd.CommandPath(), f.Name, name)
				}
			default:
				if name != strings.ToUpper(name) {
					t.Errorf("%s --%s: its value is called %q", cmd.CommandPath(), f.Name, name)
				}
			}
			for _, begin := range []string{"of ", "how many, ", "above ", "under ", "by this"} {
				if strings.HasPrefix(use, begin) {
					t.Errorf("%s --%s: %q begins in the middle", cmd.CommandPath(), f.Name, use)
				}
			}
			if f.DefValue == "-1" {
				t.Errorf("%s --%s shows the default %s, which nobody may give", cmd.CommandPath(), f.Name, f.DefValue)
			}
		}
		cmd.LocalFlags().VisitAll(check)
		cmd.PersistentFlags().VisitAll(check)
	}
	each((&cli{}).root())
}
