package doors

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// What is kept under Idempotency-Keys does not keep the bodies.
func TestKeptAnswersLetBodiesGo(t *testing.T) {
	door := NewJSON(dial(t), nil, JSONConfig{}, newMetrics(t))
	pad := strings.Repeat(" ", 200<<10)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 200 {
		body := fmt.Sprintf(`{"requests":[{"attributes":{"tenant":"t%d"}}]%s}`, i, pad)
		if w := post(door, "/v1/decide", body, fmt.Sprintf("Idempotency-Key: k%d", i)); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	after := heap()
	if after > before+8<<20 {
		t.Errorf("the heap grew by %d MiB for 200 answers of %d bytes in all", (after-before)>>20, door.kept.bytes)
	}
	runtime.KeepAlive(door)
}
