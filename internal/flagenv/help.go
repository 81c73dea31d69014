package flagenv

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Help writes the flags of a command: each with its value, its variable, its use and its default.
func Help(w io.Writer, f *flag.FlagSet, prefix string) {
	fmt.Fprint(w, "Flags:\n")
	f.VisitAll(func(f *flag.Flag) {
		line := "  --" + f.Name
		value, use := flag.UnquoteUsage(f)
		if value != "" {
			line += " " + value
		}
		if def := standard(f); def != "" {
			use += " (default " + def + ")"
		}
		fmt.Fprintf(w, "%s   (%s)\n        %s\n", line, Name(prefix, f.Name), use)
	})
}

// standard is a flag's default as people write it; empty if it means nothing.
func standard(f *flag.Flag) string {
	d, err := time.ParseDuration(f.DefValue)
	switch {
	case f.DefValue == "false", f.DefValue == "0":
		return ""
	case err != nil:
		return f.DefValue
	case d == 0:
		return ""
	}
	short := f.DefValue
	for _, none := range []string{"m0s", "h0m"} { // 72h0m0s, 10m0s
		if strings.HasSuffix(short, none) {
			short = short[:len(short)-2]
		}
	}
	return short
}
