package quotactl

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/f4ee788f/quota/internal/display"
	"github.com/f4ee788f/quota/internal/sheet"
)

// format is how a list is printed.
type format string

func (f *format) flag(cmd *cobra.Command) {
	*f = "table"
	cmd.Flags().VarP(f, "output", "o", "table, json or csv")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "csv"}, cobra.ShellCompDirectiveNoFileComp))
}

// String, Set and Type make a flag of it.
func (f *format) String() string { return string(*f) }

// Set takes table, json or csv.
func (f *format) Set(s string) error {
	switch s {
	case "table", "json", "csv":
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be table, json or csv")
}

// Type names the value in help.
func (f *format) Type() string { return "FORMAT" }

// table is rows of text under a header; numbers says which columns are right-aligned.
type table struct {
	header  []string
	numbers map[int]bool
	rows    [][]string
}

// add takes a row; a cell that is empty stays so in CSV, where a dash would be a value.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table, with a dash for an empty cell.
func (t *table) print(w io.Writer) error {
	all := append([][]string{t.header}, t.rows...)
	for i, row := range all {
		all[i] = make([]string, len(row))
		for j, cell := range row {
			all[i][j] = dash(cell)
		}
	}
	return display.Table(w, all, t.numbers)
}

// csv writes the table with the header's words in lower case, and text as sheet.Text has it.
func (t *table) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	header := make([]string, len(t.header))
	for i, h := range t.header {
		header[i] = strings.ReplaceAll(strings.ToLower(h), " ", "_")
	}
	_ = out.Write(header) // Flush and Error tell
	for _, row := range t.rows {
		cells := slices.Clone(row)
		for i := range cells {
			if !t.numbers[i] {
				cells[i] = sheet.Text(cells[i])
			}
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return out.Error()
}

// write prints the table, or v where JSON is asked for.
func (c *cli) write(f format, t *table, v any) error {
	switch f {
	case "json":
		return writeJSON(c.Out, v)
	case "csv":
		return t.csv(c.file())
	}
	return t.print(c.Out)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// stamp writes Unix milliseconds as a time in UTC; nothing for none.
func stamp(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// dash stands for what is empty, so that columns keep apart.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// outcome is how a command says what it did: in a sentence, or as JSON.
type outcome string

// String, Set and Type make a flag of it.
func (o *outcome) String() string { return string(*o) }

// Set takes text or json.
func (o *outcome) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("must be text or json")
	}
	*o = outcome(s)
	return nil
}

// Type names the value in help.
func (o *outcome) Type() string { return "FORMAT" }

// outcomes gives every command that has no --output of its own one of text and json.
func (c *cli) outcomes(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.outcomes(sub)
	}
	if cmd.HasSubCommands() || cmd.Flags().Lookup("output") != nil {
		return
	}
	c.output = "text"
	cmd.Flags().VarP(&c.output, "output", "o", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// tell says what a command did: v where JSON is asked for, and the sentence where not.
func (c *cli) tell(v any, format string, args ...any) error {
	if c.output != "json" {
		c.say(format, args...)
		return nil
	}
	if m, ok := v.(proto.Message); ok {
		return c.writeProto(m)
	}
	return writeJSON(c.Out, v)
}
