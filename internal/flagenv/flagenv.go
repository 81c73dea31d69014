// Package flagenv reads flags from the command line, then the environment, then a file: the first that sets a value
// wins. All servers and agents use it, so the environment means the same everywhere.
//
// A variable that is set to nothing gives a text flag the empty value, as --flag= does. For a number, a duration or a
// switch there is no empty value: the variable counts as not set.
package flagenv

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"os"
	"strings"

	"github.com/peterbourgon/ff/v3"
)

// Parse reads args, the variables PREFIX_FLAG, and the file that --config names, if f has such a flag.
func Parse(f *flag.FlagSet, args []string, prefix string) error {
	var empty []string
	f.VisitAll(func(fl *flag.Flag) {
		if v, ok := os.LookupEnv(Name(prefix, fl.Name)); ok && v == "" && text(fl.Value) {
			empty = append(empty, "--"+fl.Name+"=")
		}
	})
	options := []ff.Option{ff.WithEnvVarPrefix(prefix)}
	if f.Lookup("config") != nil {
		options = append(options, ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(plain))
	}
	return ff.Parse(f, append(empty, args...), options...) // of a flag that is given twice, the last counts
}

// Name is the variable of a flag.
func Name(prefix, flag string) string {
	return prefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// text reports whether a flag takes any text, the empty one too.
func text(v flag.Value) bool {
	g, ok := v.(flag.Getter)
	if !ok {
		return true // a type of ours: they take lists of words
	}
	_, ok = g.Get().(string)
	return ok
}

var bom = []byte("\xef\xbb\xbf")

// plain is ff's parser of lines with a flag and its value. It skips the byte order mark that some editors put first.
func plain(r io.Reader, set func(name, value string) error) error {
	b := bufio.NewReader(r)
	if first, err := b.Peek(len(bom)); err == nil && bytes.Equal(first, bom) {
		_, _ = b.Discard(len(bom)) // it was just seen
	}
	return ff.PlainParser(b, set)
}
