package main

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	const clockThreadCPUTime = 3
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		check(errno)
	}
	return time.Duration(t.Nano())
}
