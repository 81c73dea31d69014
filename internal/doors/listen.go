package doors

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// ErrAddress means that an address is neither HOST:PORT nor unix:PATH.
var ErrAddress = errors.New("doors: invalid address")

// CheckAddress reports what is wrong with an address for Listen. The error wraps ErrAddress.
func CheckAddress(addr string) error {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if path == "" || len(path) > maxSocketPath {
			return fmt.Errorf("%w: %q: a socket's path has 1 to %d bytes", ErrAddress, addr, maxSocketPath)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%w: %q: write HOST:PORT or unix:PATH", ErrAddress, addr)
	}
	return nil
}

// maxSocketPath is what Linux's sun_path holds, its final zero not counted.
const maxSocketPath = 107

// Listen listens on HOST:PORT, or with unix:PATH on a Unix socket that its owner and
// group may use. A socket that a dead process left behind is replaced; one that
// somebody listens on is not.
func Listen(addr string) (net.Listener, error) {
	if err := CheckAddress(addr); err != nil {
		return nil, err
	}
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("doors: %w", err)
		}
		return l, nil
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return nil, fmt.Errorf("doors: listen on %s: %w", addr, syscall.EADDRINUSE)
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("doors: %w", err)
			}
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("doors: %w", err)
	}
	// A process that may connect may spend, so not everybody on the machine may connect.
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("doors: %w", err), l.Close())
	}
	return l, nil
}
