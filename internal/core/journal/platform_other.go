//go:build !linux

package journal

import (
	"os"
	"unsafe"
)

const supported = false

func lock(*os.File) (bool, error)                     { return false, ErrUnsupported }
func reserve(*os.File, int64, int64) error            { return ErrUnsupported }
func fill(*os.File, int64) error                      { return ErrUnsupported }
func mapShared(*os.File, int64, bool) ([]byte, error) { return nil, ErrUnsupported }
func unmap([]byte) error                              { return nil }
func flush([]byte) error                              { return ErrUnsupported }
func start([]byte) unsafe.Pointer                     { return nil }
