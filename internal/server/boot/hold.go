package boot

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// hold locks a file for this process until it is closed, or the process ends.
func hold(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("another server uses these files (%s: %w); stop it, or give --data-dir another directory", path, err)
	}
	return f, nil
}
