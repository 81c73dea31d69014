//go:build !linux

package doors

import (
	"errors"

	"github.com/f4ee788f/quota/internal/core/ask"
)

// turner leads no stream here: each line has a goroutine.
type turner struct{}

func (*turner) lead(*stream, *ask.Line) error { return errors.ErrUnsupported }
func (*turner) end()                          {}

// led is there for what is built for Linux too.
type led struct{}

func (*led) begin(*leader)   {}
func (*led) pass(*leader)    {}
func (*led) stalls()         {}
func (*led) send(*ask.Frame) {}
func (*led) goOn(*turn) bool { return false }

type turn struct{}
