//go:build linux

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func begin(t *testing.T, path string, epoch int64) (*Dir, *Life) {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Begin("gw", epoch)
	if err != nil {
		t.Fatal(err)
	}
	return d, l
}

// leave ends a life as a kill does: nothing is written any more.
func leave(t *testing.T, d *Dir, l *Life) {
	t.Helper()
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// resume returns the only life's records.
func resume(path string) (records [][]byte, l *Life, err error) {
	d, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	lives, err := d.Lives()
	if err != nil || len(lives) != 1 {
		return nil, nil, errors.Join(err, fmt.Errorf("%d lives", len(lives)))
	}
	l, err = d.Resume(lives[0], func(body []byte) error {
		records = append(records, body)
		return nil
	})
	return records, l, err
}

func counter(at unsafe.Pointer) *int64 { return (*int64)(at) }

// What was written is there after the process is no more, and the life goes on after it.
func TestALifeIsResumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	d, l := begin(t, path, 5)
	n, at, err := l.Cell()
	if err != nil || uintptr(at)%CellSize != 0 {
		t.Fatalf("cell at %x: %v", at, err)
	}
	*counter(at) = 42
	for i := range 3 {
		if err := l.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	leave(t, d, l)

	records, again, err := resume(path)
	if err != nil || len(records) != 3 || string(records[2]) != "record 2" {
		t.Fatalf("%q: %v", records, err)
	}
	if again.Agent != "gw" || again.Epoch != 5 || *counter(again.At(n)) != 42 || again.At(n+pageCells) != nil {
		t.Errorf("%+v with %d in the cell", again.Header, *counter(again.At(n)))
	}
	if err := errors.Join(again.Append([]byte("more")), again.Close()); err != nil {
		t.Fatal(err)
	}
	if records, again, err = resume(path); err != nil || len(records) != 4 {
		t.Fatalf("%q: %v", records, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A log that ends within a record, wherever, has all records before it and nothing of that one; and
// so has one with a byte that is wrong.
func TestATornLogEndsBefore(t *testing.T) {
	path := t.TempDir()
	d, l := begin(t, path, 5)
	var ends []int64
	for i := range 3 {
		if err := l.Append(bytes.Repeat([]byte{byte('a' + i)}, 10*(i+1))); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, l.size)
	}
	leave(t, d, l)
	name := filepath.Join(path, "5.log")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first := ends[0] - frame - 10
	for at := first; at < int64(len(whole)); at++ {
		want := 0
		for want < len(ends) && ends[want] <= at {
			want++
		}
		wrong := slices.Clone(whole)
		wrong[at] ^= 0x40
		for what, content := range map[string][]byte{"cut": whole[:at], "wrong": wrong, "zero": append(slices.Clone(whole[:at]), make([]byte, int64(len(whole))-at)...)} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			records, again, err := resume(path)
			if err != nil {
				t.Fatalf("%s at byte %d: %v", what, at, err)
			}
			if len(records) != want {
				t.Errorf("%s at byte %d: %d records, want %d", what, at, len(records), want)
			}
			if err := again.Append([]byte("next")); err != nil {
				t.Fatal(err)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			if after, again, err := resume(path); err != nil || len(after) != want+1 {
				t.Errorf("%s at byte %d: %d records after another, want %d: %v", what, at, len(after), want+1, err)
			} else if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Each way in which a directory cannot be used has its own error.
func TestWhatCannotBeUsedIsRefused(t *testing.T) {
	path := t.TempDir()
	d, l := begin(t, path, 5)
	if _, err := Open(path); !errors.Is(err, ErrBusy) {
		t.Errorf("a second process: %v, want %v", err, ErrBusy)
	}
	leave(t, d, l)

	if err := os.Truncate(filepath.Join(path, "5.cells.0"), pageSize/2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := resume(path); !errors.Is(err, ErrDamaged) {
		t.Errorf("truncated cells: %v, want %v", err, ErrDamaged)
	}
	if err := os.Remove(filepath.Join(path, "5.cells.0")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := resume(path); !errors.Is(err, ErrDamaged) {
		t.Errorf("no cells: %v, want %v", err, ErrDamaged)
	}

	other := t.TempDir()
	f, err := os.Create(filepath.Join(other, "6.log"))
	if err != nil {
		t.Fatal(err)
	}
	w := log{file: f}
	if err := errors.Join(w.append([]byte(`{"format":99,"epoch":6}`)), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := resume(other); !errors.Is(err, ErrFormat) {
		t.Errorf("another format: %v, want %v", err, ErrFormat)
	}
}

// smallDisk mounts one of three megabytes.
func smallDisk(t *testing.T, flags uintptr) string {
	t.Helper()
	path := t.TempDir()
	err := unix.Mount("none", path, "tmpfs", flags, "size=3m")
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip("a small disk is mounted by root only")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil { // its cells are mapped
			t.Error(err)
		}
	})
	return path
}

// A disk that cannot sync is told of once, and holds up nothing after that.
func TestADiskThatCannotSync(t *testing.T) {
	d, l := begin(t, t.TempDir(), 5)
	r, w, err := os.Pipe() // which has no disk
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l.file, r = r, l.file
	if err := l.Sync(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the first time: %v, want %v", err, unix.EINVAL)
	}
	if err := l.Append([]byte("x")); !errors.Is(err, ErrVoid) {
		t.Errorf("then: %v, want %v", err, ErrVoid)
	}
	if err := l.Sync(); err != nil {
		t.Errorf("the next time: %v", err)
	}
	l.file, r = r, l.file
	leave(t, d, l)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// On a disk that is full nothing begins; one that fills up later makes the life void where its log cannot
// be written, and takes no cell where only the pages cannot grow. On a disk that is read-only nothing begins.
func TestFullAndReadOnlyDisks(t *testing.T) {
	path := smallDisk(t, 0)
	d, l := begin(t, path, 5)
	var err error
	for range 10 * pageCells {
		if _, _, err = l.Cell(); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) || l.Append([]byte("there is room in the log")) != nil {
		t.Errorf("more cells than fit: %v", err)
	}
	for err = nil; err == nil; {
		err = l.Append(make([]byte, 100_000))
	}
	if !errors.Is(err, ErrVoid) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a log that does not fit: %v, want %v", err, ErrVoid)
	}
	leave(t, d, l)
	d, err = Open(path)
	if err != nil {
		t.Fatal(err)
	}
	lives, err := d.Lives()
	if err != nil || len(lives) == 0 {
		t.Fatalf("%v: %v", lives, err)
	}
	if _, err := d.Resume(lives[0], func([]byte) error { return nil }); !errors.Is(err, ErrVoid) {
		t.Errorf("a life that was given up: %v, want %v", err, ErrVoid)
	}
	if _, err := d.Begin("gw", 7); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a life on a full disk: %v, want %v", err, unix.ENOSPC)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(smallDisk(t, unix.MS_RDONLY)); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only disk: %v, want %v", err, unix.EROFS)
	}
}

// A cell is another's only once its zeros are on the disk, and not soon after.
func TestFreeCellsRest(t *testing.T) {
	d, l := begin(t, t.TempDir(), 5)
	defer leave(t, d, l)
	n, at, err := l.Cell()
	if err != nil {
		t.Fatal(err)
	}
	*counter(at) = 7
	l.Free(n)
	for range rest {
		m, _, err := l.Cell()
		if err != nil {
			t.Fatal(err)
		}
		l.Free(m)
	}
	if m, _, err := l.Cell(); err != nil || m <= n+rest {
		t.Errorf("cell %d is %d again before its zeros are on the disk: %v", n, m, err)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if m, at, err := l.Cell(); err != nil || m != n || *counter(at) != 0 {
		t.Errorf("cell %d with %d in it, want %d with 0: %v", m, *counter(at), n, err)
	}
}

// What is settled is no life any more, its cells go at once, and its log with age or size.
func TestDrainedLives(t *testing.T) {
	path := t.TempDir()
	d, l := begin(t, path, 5)
	defer func() { _ = d.Close() }()
	if err := l.Drain(); err != nil {
		t.Fatal(err)
	}
	second, err := d.Begin("gw", 1) // the clock stepped back
	if err != nil || second.Epoch != 6 {
		t.Fatalf("epoch %d: %v; want 6", second.Epoch, err)
	}
	if err := second.Drain(); err != nil {
		t.Fatal(err)
	}
	lives, err := d.Lives()
	if agent, e := d.Agent(); err != nil || len(lives) != 0 || agent != "gw" || e != nil {
		t.Errorf("%v, agent %q: %v %v", lives, agent, err, e)
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for _, step := range []struct {
		age  time.Duration
		size int64
		want []string
	}{
		{time.Hour, 1 << 20, []string{"5.settled", "6.settled", "lock"}},
		{time.Hour, 200, []string{"6.settled", "lock"}},
		{-time.Hour, 1 << 20, []string{"lock"}},
	} {
		if err := d.Prune(time.Now(), step.age, step.size); err != nil {
			t.Fatal(err)
		}
		if got := left(); !slices.Equal(got, step.want) {
			t.Errorf("kept for %v and %d bytes: %v, want %v", step.age, step.size, got, step.want)
		}
	}
}

// A log that is made anew has the new records only, goes on after them, and what it had is kept for a time.
func TestALogIsMadeAnew(t *testing.T) {
	path := t.TempDir()
	d, l := begin(t, path, 5)
	if err := l.Append([]byte("of no interest")); err != nil {
		t.Fatal(err)
	}
	failing := errors.New("no")
	if err := l.Rotate(func(func([]byte) error) error { return failing }); !errors.Is(err, failing) {
		t.Errorf("got %v, want %v", err, failing)
	}
	if err := errors.Join(
		l.Append([]byte("old")),
		l.Rotate(func(add func([]byte) error) error { return errors.Join(add([]byte("one")), add([]byte("two"))) }),
		l.Append([]byte("three")),
	); err != nil {
		t.Fatal(err)
	}
	leave(t, d, l)
	records, again, err := resume(path)
	if err != nil || string(bytes.Join(records, []byte(" "))) != "one two three" {
		t.Errorf("%q: %v", records, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	kept, err := filepath.Glob(filepath.Join(path, "*"+drained))
	if err != nil || len(kept) != 1 {
		t.Errorf("%v: %v; want the log that was", kept, err)
	}
}
