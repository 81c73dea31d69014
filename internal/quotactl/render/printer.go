package render

import (
	"encoding/json"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Printer answers for a command: a table, or the same as CSV or JSON; or a sentence, or the same as JSON.
type Printer struct {
	Out, Err io.Writer
	Output   Format // of the commands that print no table
}

// Write prints the table, or v where JSON is asked for.
func (p *Printer) Write(f Format, t *Table, v any) error {
	switch f {
	case "json":
		return p.JSON(v)
	case "csv":
		return t.csv(p.File())
	}
	return t.print(p.Out)
}

// Beside is where remarks about a table of that format go: under it, or beside a file.
func (p *Printer) Beside(f Format) io.Writer {
	if f == "table" {
		return p.Out
	}
	return p.Err
}

// Tell prints a command's outcome: v if JSON is asked for, else the sentence.
func (p *Printer) Tell(v any, format string, args ...any) error {
	if p.Output == "json" {
		return p.JSON(v)
	}
	p.Say(format, args...)
	return nil
}

// JSON prints a message or any other value. protojson varies its blanks on purpose, so they are set here.
func (p *Printer) JSON(v any) error {
	if m, ok := v.(proto.Message); ok {
		var err error
		if v, err = Plain(m); err != nil {
			return err
		}
	}
	enc := json.NewEncoder(p.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Stamp writes Unix milliseconds as a time in UTC; nothing for none.
func Stamp(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// Dash stands for empty text, so that columns stay apart.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Plain is a message as JSON has it.
func Plain(m proto.Message) (v any, err error) {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}
