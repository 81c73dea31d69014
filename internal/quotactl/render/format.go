package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Format is how a command answers: as a table or a sentence for people, or for programs.
type Format string

// Flag gives a command --output: one of some formats, by default the first. usage lists them, if there is more to say
// of them.
func (f *Format) Flag(cmd *cobra.Command, usage string, formats ...string) {
	if usage == "" {
		usage = either(formats)
	}
	*f = Format(formats[0])
	cmd.Flags().VarP(&choice{f, formats}, "output", "o", usage)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Table gives a command that lists --output table, json or csv.
func (f *Format) Table(cmd *cobra.Command) { f.Flag(cmd, "", "table", "json", "csv") }

// Text gives a command that changes something --output text or json.
func (f *Format) Text(cmd *cobra.Command) { f.Flag(cmd, "", "text", "json") }

// choice makes a flag of a format.
type choice struct {
	of      *Format
	formats []string
}

// String is the flag's value.
func (c *choice) String() string {
	if c.of == nil {
		return ""
	}
	return string(*c.of)
}

// Set takes one of the formats.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.formats, s) {
		return fmt.Errorf("must be %s", either(c.formats))
	}
	*c.of = Format(s)
	return nil
}

// Type names the value in help.
func (c *choice) Type() string { return "FORMAT" }

// either lists names as in a sentence.
func either(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
