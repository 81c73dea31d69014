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
	o, err := s.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := o.Renewed(t.Context())
	if err != nil || renewed != 0 {
		t.Errorf("got %d renewals and %v, want none", renewed, err)
	}
	if rows, err := o.Rows(t.Context()); err != nil || rows != 0 {
		t.Errorf("got %d rows and %v, want none", rows, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
