package hugepages

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	huge = 2 << 20
	// near is how far, in bits of an address, the heap extends from an object in it: 64 GiB. The runtime maps it in a
	// row, upward.
	near = 36
)

var object = new([64]byte) // of the heap

// advise asks for large pages for the heap above an address, and returns the new upper end; false where the system does
// not know them. The heap below was asked for before. It is left alone, so that memory which the runtime has given back
// does not return.
func advise(until uint64) (uint64, bool) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return until, false
	}
	defer func() { _ = f.Close() }() // it was read only
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		start, end := heap(lines.Text(), uint64(uintptr(unsafe.Pointer(object))))
		if start = max(start, until); start >= end {
			continue
		}
		if madvise(start, end, unix.MADV_HUGEPAGE) != 0 {
			return until, false
		}
		_ = madvise(start, end, unix.MADV_COLLAPSE) // of what is in use already; Linux before 6.1 takes its time for that
		until = end
	}
	return until, lines.Err() == nil
}

func madvise(start, end uint64, advice uintptr) unix.Errno {
	_, _, failed := unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), advice)
	return failed
}

// heap returns the range of a line of /proc/self/maps that may be in large pages, if it is the object's heap. Otherwise
// it returns 0 and 0.
func heap(line string, object uint64) (start, end uint64) {
	fields := strings.Fields(line)
	if len(fields) < 5 || fields[1] != "rw-p" || fields[4] != "0" {
		return 0, 0
	}
	from, to, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return 0, 0
	}
	if end, err = strconv.ParseUint(to, 16, 64); err != nil || start>>near != object>>near {
		return 0, 0
	}
	if start, end = (start+huge-1)&^(huge-1), end&^(huge-1); start >= end {
		return 0, 0
	}
	return start, end
}
