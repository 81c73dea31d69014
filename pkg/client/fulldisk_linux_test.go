package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// A disk that is full when a killed process is started again takes nothing of what it
// had not settled: the start fails, and one with room settles it.
func TestAFullDiskAtTheStartLosesNothing(t *testing.T) {
	small := smallDisk(t)
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
		dir := t.TempDir()
		c := dial(t, s, WithJournal(dir))
		s.set(func(f *fake) { f.ledgerOff = true })
		admitted := drive(c, 1, 30, tenant("a"))
		killed := taken(t, dir)
		end(t, c)
		if err := os.CopyFS(small, os.DirFS(killed)); err != nil {
			t.Fatal(err)
		}
		fill(t, filepath.Join(small, "fill"))
		for range 2 {
			if c, err := Dial(t.Context(), "passthrough:fake", WithDialer(s.dial), WithJournal(small), WithAgent("gw-1")); err == nil {
				end(t, c)
				t.Fatal("a start on a full disk")
			}
		}
		if err := os.Remove(filepath.Join(small, "fill")); err != nil {
			t.Fatal(err)
		}
		s.set(func(f *fake) { f.ledgerOff = false })
		if _, err := Recover(t.Context(), "passthrough:fake", small, WithDialer(s.dial)); err != nil {
			t.Fatal(err)
		}
		if got := s.billed(nil); got != admitted {
			t.Errorf("%d units settled, %d were admitted", got, admitted)
		}
	})
}

// A disk that is full while events are booked: those that were answered are booked, and of the others none.
func TestAFullDiskRefusesEvents(t *testing.T) {
	small := smallDisk(t)
	bubble(t, plans(1, hourly("requests", 1000)), func(t *testing.T, s *fake) {
		c := dial(t, s, WithJournal(small))
		mustBook(t, c, 1, event("first", 1, "a"))
		fill(t, filepath.Join(small, "fill"))
		answered := int64(1)
		for i := 0; ; i++ {
			n, err := c.BookEvents(t.Context(), event(fmt.Sprint(i), 1, "a"), event(fmt.Sprint(i, "b"), 1, "a"), event(fmt.Sprint(i, "c"), 1, "a"))
			if err != nil {
				if !errors.Is(err, ErrUnjournalled) || n != 0 || i == 0 || c.events.knows(usage.EventID("a", "gateway", fmt.Sprint(i))) {
					t.Errorf("after %d calls: booked %d, %v", i, n, err)
				}
				break
			}
			answered += int64(n)
		}
		_ = c.Close(t.Context()) // it says that the disk is full
		if got := s.billed(nil); got != answered {
			t.Errorf("the ledger has %d units, %d were answered", got, answered)
		}
	})
}

// smallDisk is a disk of 3 MiB, until the test ends.
func smallDisk(t *testing.T) string {
	t.Helper()
	small := t.TempDir()
	err := unix.Mount("none", small, "tmpfs", 0, "size=3m,mode=700")
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip("a small disk is mounted by root only")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil { // its cells are mapped
			t.Error(err)
		}
	})
	return small
}

func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
