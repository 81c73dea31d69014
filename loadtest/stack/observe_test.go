package stack

import (
	"os/exec"
	"runtime"
	"testing"
)

// What a process and its children use is counted, also of a child that has ended.
func TestCPUCountsChildren(t *testing.T) {
	sum := func() (s float64) {
		cpu, err := CPU()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range cpu {
			s += v
		}
		return s
	}
	before := sum()
	if before <= 0 && runtime.GOOS != "linux" {
		t.Skip("no /proc here")
	}
	if err := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	if used := sum() - before; used < 0.02 || used > 30 {
		t.Errorf("a child that counts to 100,000 used %.2f s", used)
	}
}

// An observer of embedded engines sees the server's renewals, and nothing of engines that are not there.
func TestObserveEmbedded(t *testing.T) {
	s, err := Embedded(t.Context(), "default_plan: free\nplans: {free: {limits: [{name: requests, rate: 1/second}]}}\n")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	o, err := Observe(t.Context(), s.Parts())
	if err != nil {
		t.Fatal(err)
	}
	done, err := o.Servers(t.Context())
	if err != nil || done == nil || done.Renewed != 0 || done.CPU <= 0 {
		t.Errorf("got %+v and %v of the server, want no renewals and some of the processor", done, err)
	}
	if rows, err := o.Rows(t.Context()); err != nil || rows != nil {
		t.Errorf("got %v rows and %v, want that they are not seen", rows, err)
	}
	if done, err := o.Redis(t.Context()); err != nil || done != nil {
		t.Errorf("got %v and %v of Redis, want that it is not seen", done, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
