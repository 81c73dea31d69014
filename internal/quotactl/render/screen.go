package render

import (
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/f4ee788f/quota/internal/display"
)

// Screen is one of quotactl's streams. Its output may end up on a terminal, which obeys control characters and turns
// text around at a bidi override. It escapes both. It keeps the first error, so that a command whose answer was lost
// fails.
type Screen struct {
	to      io.Writer
	exact   bool   // bytes go through as they are: a file's
	partial []byte // the beginning of a character whose rest has not come yet
	err     error
}

// NewScreen returns a screen before a stream.
func NewScreen(to io.Writer) *Screen { return &Screen{to: to} }

// Write implements io.Writer.
func (s *Screen) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	text := p
	if !s.exact {
		all := append(s.partial, p...)
		n := len(all)
		for i := 1; i < utf8.UTFMax && i <= n; i++ {
			if utf8.RuneStart(all[n-i]) {
				if !utf8.FullRune(all[n-i:]) {
					n -= i
				}
				break
			}
		}
		s.partial = append([]byte(nil), all[n:]...)
		text = []byte(display.Escape(string(all[:n]), "\n\t"))
	}
	if _, s.err = s.to.Write(text); s.err != nil {
		return 0, s.err
	}
	return len(p), nil
}

// Close writes what is left of a broken character, and returns the first error.
func (s *Screen) Close() error {
	if len(s.partial) > 0 && s.err == nil {
		_, s.err = s.to.Write([]byte(display.Escape(string(s.partial), "")))
		s.partial = nil
	}
	return s.err
}

// line puts the values of a sentence on one line: a name with a line feed does not begin another.
func line(args []any) []any {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = display.Escape(v, "")
		case error:
			args[i] = display.Escape(v.Error(), "\n")
		}
	}
	return args
}

// Say writes to Out. exit finds its error.
func (p *Printer) Say(format string, args ...any) { fmt.Fprintf(p.Out, format, line(args)...) }

// Note writes beside the answer, to Err.
func (p *Printer) Note(format string, args ...any) { fmt.Fprintf(p.Err, format, line(args)...) }

// File is Out for output with a form of its own: a CSV file, a document with a digest. It goes through byte by byte,
// unless it would be shown on a terminal.
func (p *Printer) File() io.Writer {
	s, ok := p.Out.(*Screen)
	if !ok || terminal(s.to) {
		return p.Out
	}
	return &verbatim{s}
}

// verbatim writes through a screen without escaping.
type verbatim struct{ s *Screen }

// Write implements io.Writer.
func (e *verbatim) Write(p []byte) (int, error) {
	e.s.exact = true
	defer func() { e.s.exact = false }()
	return e.s.Write(p)
}

// terminal reports whether a stream is a device that shows characters.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Failed returns why Out cannot be written, or nil.
func (p *Printer) Failed() error {
	if s, ok := p.Out.(*Screen); ok {
		return s.err
	}
	return nil
}
