package quotactl

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
func (f *format) Type() string { return "format" }

// table is rows of text under a header; numbers says which columns are right-aligned.
type table struct {
	header  []string
	numbers map[int]bool
	rows    [][]string
}

// add takes a row; a cell that is empty stays so in CSV, where a dash would be a value.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table, aligned.
func (t *table) print(w io.Writer) error {
	widths := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(dash(cell))))
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range all {
		cells := make([]string, len(row))
		for i, cell := range row {
			cell = dash(cell)
			cells[i] = cell
			if t.numbers[i] {
				cells[i] = strings.Repeat(" ", widths[i]-len([]rune(cell))) + cell
			}
		}
		// Without the last cell's padding, so that nothing ends in blanks.
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), " \t"))
	}
	return tw.Flush()
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
		return t.csv(c.Out)
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
