package hugepages

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

func TestHeap(t *testing.T) {
	const object = 0xc000123456
	for _, c := range []struct {
		line       string
		start, end uint64
	}{
		{"c000000000-c000c00000 rw-p 00000000 00:00 0 ", 0xc000000000, 0xc000c00000},
		{"c000000000-c000c00000 rw-p 00000000 00:00 0 [anon: Go: heap]", 0xc000000000, 0xc000c00000},
		{"c000001000-c000bff000 rw-p 00000000 00:00 0 ", 0xc000200000, 0xc000a00000},
		{"c000001000-c0003ff000 rw-p 00000000 00:00 0 ", 0, 0},           // no page of it
		{"c000c00000-c004000000 ---p 00000000 00:00 0 ", 0, 0},           // reserved
		{"c000000000-c000c00000 rw-p 00000000 08:01 1234 /a/file", 0, 0}, // a file's
		{"7f0000000000-7f0000c00000 rw-p 00000000 00:00 0 ", 0, 0},       // the runtime's own
		{"", 0, 0},
		{"x-y rw-p 00000000 00:00 0", 0, 0},
	} {
		if start, end := heap(c.line, object); start != c.start || end != c.end {
			t.Errorf("%q: got %x to %x, want %x to %x", c.line, start, end, c.start, c.end)
		}
	}
}

// A heap that grows while it is followed comes to lie in large pages.
func TestFollow(t *testing.T) {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if _, ok := advise(math.MaxUint64); !ok || err != nil || strings.Contains(string(enabled), "[never]") {
		return // a system that gives none
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); Follow(ctx) }()
	defer func() { cancel(); <-done }()
	var kept [][]byte
	for end := time.Now().Add(20 * time.Second); ; {
		b := make([]byte, 32<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
		if len(kept) > 16 {
			kept = kept[8:]
		}
		roll, err := os.ReadFile("/proc/self/smaps_rollup")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(roll)) {
			if name, size, _ := strings.Cut(line, ":"); name == "AnonHugePages" && strings.TrimSpace(size) != "0 kB" {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no large page after 20 s:\n%s", roll)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
