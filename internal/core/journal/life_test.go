//go:build linux

package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func begin(t *testing.T, path string, epoch int64) (*Dir, *Life) {
	t.Helper()
	d, err := Open(path, nil)
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
	d, err := Open(path, nil)
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

// A log that ends anywhere within a record has all records before it and nothing of that one. The same holds
// for a record with a wrong byte.
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
	if _, err := Open(path, nil); !errors.Is(err, ErrBusy) {
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
	err := unix.Mount("none", path, "tmpfs", flags, "size=3m,mode=700")
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

// In a directory that others write to anybody could leave usage to be settled.
func TestADirectoryOthersWriteToIsRefused(t *testing.T) {
	for mode, want := range map[os.FileMode]error{0o777: ErrOpen, 0o770: ErrOpen, 0o702: ErrOpen, 0o755: nil, 0o700: nil} {
		path := t.TempDir()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		d, err := Open(path, nil)
		if !errors.Is(err, want) {
			t.Errorf("a directory of %#o: got %v, want %v", mode, err, want)
		}
		if err == nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// On a full disk nothing begins. A disk that fills up later makes the life void if its log cannot be written.
// If only the pages cannot grow, it takes no cell. On a read-only disk nothing begins.
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
	d, err = Open(path, nil)
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
	if _, err := Open(smallDisk(t, unix.MS_RDONLY), nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only disk: %v, want %v", err, unix.EROFS)
	}
}

// A life that was resumed is given up as well, once it was acted upon: what it settled then is not in its log. One that
// could not even be taken up has settled nothing, and is taken up when there is room.
func TestAResumedLifeIsGivenUp(t *testing.T) {
	path := smallDisk(t, 0)
	d, l := begin(t, path, 5)
	leave(t, d, l)
	fill := func() {
		t.Helper()
		err := os.WriteFile(filepath.Join(path, "filler"), make([]byte, 4<<20), 0o600)
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	resumed := func(want error) {
		t.Helper()
		d, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		lives, err := d.Lives()
		if err != nil || len(lives) != 1 {
			t.Fatalf("%v: %v", lives, err)
		}
		l, err = d.Resume(lives[0], func([]byte) error { return nil })
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	large := make([]byte, 2<<20)
	fill()
	resumed(nil)
	if err := errors.Join(l.Append(large)); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a record on a full disk: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	resumed(nil) // once more
	if err := errors.Join(l.Append(large[:10]), l.Sync()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(large); !errors.Is(err, ErrVoid) {
		t.Fatalf("a record on a full disk: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	resumed(ErrVoid)
}

// A life that was resumed and is settled leaves neither files open nor memory mapped.
func TestAResumedLifeLeavesNothingOpen(t *testing.T) {
	path := t.TempDir()
	d, l := begin(t, path, 5)
	leave(t, d, l)
	if d, err := Open(path, nil); err != nil {
		t.Fatal(err)
	} else if l, err := d.Resume(Header{Epoch: 5, Agent: "gw", Format: plainFormat}, func([]byte) error { return nil }); err != nil {
		t.Fatal(err)
	} else if err := errors.Join(l.Drain(), d.Close()); err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(maps, []byte(path)); n != 1 { // the life's own, that began here
		t.Errorf("%d files are mapped, want the 1 of the life that began here", n)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range open {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, path) {
			t.Errorf("%s is open", to)
		}
	}
}

// A first record that cannot be read is damage where the life had begun, and nothing where it had not.
func TestAFirstRecordThatCannotBeRead(t *testing.T) {
	for what, after := range map[string]func(l *Life) error{
		"with counts":  func(l *Life) error { _, at, err := l.Cell(); *counter(at) = 7; return err },
		"with records": func(l *Life) error { return l.Append(make([]byte, 2000)) },
		"at once":      func(*Life) error { return nil },
	} {
		path := t.TempDir()
		d, l := begin(t, path, 5)
		if err := after(l); err != nil {
			t.Fatal(err)
		}
		leave(t, d, l)
		name := filepath.Join(path, "5.log")
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		body[frame+2] ^= 1
		if err := os.WriteFile(name, body, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err = Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		lives, err := d.Lives()
		_, there := os.Stat(name)
		if began := what != "at once"; began && (!errors.Is(err, ErrDamaged) || there != nil) || !began && (err != nil || len(lives) > 0 || there == nil) {
			t.Errorf("%s: %v: %v; the log: %v", what, lives, err, there)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A record that no reader would take is refused, and the life given up.
func TestARecordThatIsTooLong(t *testing.T) {
	d, l := begin(t, t.TempDir(), 5)
	if err := l.Append(make([]byte, maxRecord+1)); !errors.Is(err, ErrVoid) || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got %v, want %v and what is allowed", err, ErrVoid)
	}
	leave(t, d, l)
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
	room := l.Size() * 3 / 2 // for one log
	if err := l.Drain(); err != nil {
		t.Fatal(err)
	}
	second, err := d.Begin("gw", 1) // the clock stepped back
	if err != nil || second.Epoch != 5+Apart {
		t.Fatalf("epoch %d: %v; want %d", second.Epoch, err, 5+Apart)
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
		{time.Hour, 1 << 20, []string{"1048581.settled", "5.settled", "lock"}},
		{time.Hour, room, []string{"1048581.settled", "lock"}},
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

// A life that was given up is kept from when that was found out, and goes with age or size like what is settled.
func TestVoidLivesArePruned(t *testing.T) {
	path := t.TempDir()
	d, l := begin(t, path, 5)
	defer func() { _ = d.Close() }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	found := time.Now().Add(100 * time.Hour)
	if err := d.SetAside(l.Header, found); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		size  int64
		want  int
	}{{71 * time.Hour, 1 << 20, 1}, {73 * time.Hour, 1 << 20, 0}} {
		if err := d.Prune(found.Add(step.after), 72*time.Hour, step.size); err != nil {
			t.Fatal(err)
		}
		if logs, err := d.Kept(); err != nil || len(logs) != step.want {
			t.Errorf("%v later: %v, %v; want %d", step.after, logs, err, step.want)
		}
	}
	second, err := d.Begin("gw", 1)
	if err == nil {
		err = errors.Join(second.Close(), d.SetAside(second.Header, found), d.Prune(found, time.Hour, 10))
	}
	if logs, e := d.Kept(); err != nil || e != nil || len(logs) != 0 {
		t.Errorf("beyond the size: %v, %v, %v", logs, err, e)
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
	if _, err := l.Rotate(func(func([]byte) error) error { return failing }); !errors.Is(err, failing) {
		t.Errorf("got %v, want %v", err, failing)
	}
	if err := l.Append([]byte("old")); err != nil {
		t.Fatal(err)
	}
	put, err := l.Rotate(func(add func([]byte) error) error { return errors.Join(add([]byte("one")), add([]byte("two"))) })
	if err != nil {
		t.Fatal(err)
	}
	// Until it is put in place nobody is held up, and what the log has is what was and what comes.
	if _, _, err := l.Cell(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Append([]byte("meanwhile")), l.Sync()); err != nil {
		t.Fatal(err)
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	if records, again, err := resume(killed); err != nil || string(bytes.Join(records, []byte(" "))) != "of no interest old meanwhile" {
		t.Errorf("killed meanwhile: %q: %v", records, err)
	} else if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(put(), l.Append([]byte("three")), l.Sync()); err != nil {
		t.Fatal(err)
	}
	leave(t, d, l)
	records, again, err := resume(path)
	if err != nil || string(bytes.Join(records, []byte(" "))) != "one two meanwhile three" {
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

// A process is killed between any two changes of the directory: while a life begins, its log is made anew, or
// it is put away. What is left is one life with all its records, or none.
func TestKilledBetweenTwoFiles(t *testing.T) {
	made := t.TempDir() // a life with its files, and what its log is made anew as
	d, l := begin(t, made, 5)
	if err := errors.Join(l.Append([]byte("one")), l.Append([]byte("two"))); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Rotate(func(add func([]byte) error) error { return add([]byte("both")) }); err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, name := range []string{"5.cells.0", "5.log", "5.new"} {
		body, err := os.ReadFile(filepath.Join(made, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = body
	}
	leave(t, d, l)
	cells, old, anew := files["5.cells.0"], files["5.log"], files["5.new"]
	for _, at := range []struct {
		when    string
		files   map[string][]byte
		records string // of the life; empty for none
		kept    int    // logs
	}{
		{"begin: its cells are there", map[string][]byte{"5.cells.0": cells}, "", 0},
		{"begin: its log is there", map[string][]byte{"5.cells.0": cells, "5.log": nil}, "", 0},
		{"begin: a part of its first record is there", map[string][]byte{"5.cells.0": cells, "5.log": old[:20]}, "", 0},
		{"anew: the new log is there", map[string][]byte{"5.cells.0": cells, "5.log": old, "5.new": nil}, "one two", 1},
		{"anew: it is written", map[string][]byte{"5.cells.0": cells, "5.log": old, "5.new": anew}, "one two", 1},
		{"anew: the old one is kept", map[string][]byte{"5.cells.0": cells, "5.log": old, "5.1.settled": old, "5.new": anew}, "one two", 2},
		{"anew: the new one is in its place", map[string][]byte{"5.cells.0": cells, "5.log": anew, "5.1.settled": old}, "both", 2},
		{"drained: its log is put away", map[string][]byte{"5.cells.0": cells, "5.settled": old}, "", 1},
		{"drained", map[string][]byte{"5.settled": old}, "", 1},
		{"given up: its log is put away", map[string][]byte{"5.cells.0": cells, "5.void": old}, "", 1},
	} {
		path := t.TempDir()
		for name, body := range at.files {
			if err := os.WriteFile(filepath.Join(path, name), body, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d, err := Open(path, nil)
		if err != nil {
			t.Fatalf("%s: %v", at.when, err)
		}
		lives, err := d.Lives()
		if err != nil || len(lives) != min(len(at.records), 1) {
			t.Fatalf("%s: lives %v, %v", at.when, lives, err)
		}
		var records [][]byte
		for _, h := range lives {
			l, err := d.Resume(h, func(body []byte) error { records = append(records, body); return nil })
			if err != nil {
				t.Fatalf("%s: %v", at.when, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(bytes.Join(records, []byte(" "))); got != at.records {
			t.Errorf("%s: got %q, want %q", at.when, got, at.records)
		}
		if logs, err := d.Kept(); err != nil || len(logs) != at.kept {
			t.Errorf("%s: %d logs are kept, want %d: %v", at.when, len(logs), at.kept, err)
		}
		next, err := d.Begin("gw", 5) // the clock stands still
		if err != nil || next.Epoch != 5+Apart && at.kept+len(at.records) > 0 {
			t.Fatalf("%s: another life: %+v, %v", at.when, next, err)
		}
		leave(t, d, next)
		for name := range at.files {
			gone := strings.HasSuffix(name, ".new") || strings.Contains(name, ".cells.") && at.records == "" && next.Epoch != 5
			if _, err := os.Stat(filepath.Join(path, name)); gone && err == nil {
				t.Errorf("%s: %s is still there", at.when, name)
			}
		}
	}
}
