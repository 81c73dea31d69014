package journal

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// supported says whether this platform has what a journal needs.
const supported = true

// lock takes the file for this process; false where another has it.
func lock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// reserve backs a part of the file with blocks, without a change of its size.
func reserve(f *os.File, from, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a write fails in time
	}
	return err
}

// fill makes the file n bytes long, zero, and backed by blocks.
func fill(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	_, err = f.WriteAt(make([]byte, n), 0)
	return err
}

// mapShared maps the whole file.
func mapShared(f *os.File, n int64, write bool) ([]byte, error) {
	access := unix.PROT_READ
	if write {
		access |= unix.PROT_WRITE
	}
	return unix.Mmap(int(f.Fd()), 0, int(n), access, unix.MAP_SHARED)
}

// unmap gives mapped memory back.
func unmap(b []byte) error { return unix.Munmap(b) }

// flush writes mapped pages to the disk.
func flush(b []byte) error { return unix.Msync(b, unix.MS_SYNC) }

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
