package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

var (
	// ErrBusy means that another process has the directory.
	ErrBusy = errors.New("journal: in use by another process")
	// ErrOpen means that others may write to the directory, and could put any usage in it.
	ErrOpen = errors.New("journal: others may write to the directory")
	// ErrUnsupported means that the platform cannot map files, lock them or back them with blocks.
	ErrUnsupported = errors.New("journal: not supported on this platform")
	// ErrDamaged means that the files are not what a journal wrote.
	ErrDamaged = errors.New("journal: damaged")
	// ErrFormat means that another version wrote the journal.
	ErrFormat = errors.New("journal: another format")
	// ErrVoid means that the log could not be written at some time. What is in it may have been settled otherwise since.
	ErrVoid = errors.New("journal: given up by the process that wrote it")
)

// Apart is the least distance between the epochs of a directory's lives, whatever the clock says. A life owns
// the epochs up to the next life's. It goes on under them: in its own process, or where its remains are
// settled.
const Apart = 1 << 20

// The versions of the files, and of the records that internal/core/usage writes: without seals, and with them.
const (
	plainFormat  = 1
	sealedFormat = 2
)

// Header says whose life it is.
type Header struct {
	Format int    `json:"format"`
	Agent  string `json:"agent"`
	Epoch  int64  `json:"epoch"`
	Host   string `json:"host"`
	// Salt is random bytes of this log alone, where it is under a secret.
	Salt string `json:"salt,omitempty"`
}

// Life is one start of an agent. It is safe for concurrent use.
type Life struct {
	Header

	dir *Dir
	mu  sync.Mutex
	log
	pages   pages
	next    *log // that is to take the place of log: records go to both
	unnamed bool // the log's name may not be on the disk
	rotated int
	resumed bool  // of another process: nobody has its cells in hand
	said    bool  // what it says was on the disk once, and may have been acted upon
	void    error // the log could not be written; nothing is any more

	written, synced int64 // records, of which so many are on the disk

	// Refused is what was not believed of a resumed life's log.
	Refused Refused
	// Marked says that somebody without the secret wrote that a resumed life was given up. It is not believed.
	Marked bool
}

func (d *Dir) name(epoch int64) string { return filepath.Join(d.path, strconv.FormatInt(epoch, 10)) }

// Begin begins a life, later by Apart at least than all that the directory knows: the header has its epoch.
func (d *Dir) Begin(agent string, epoch int64) (_ *Life, err error) {
	if d.latest > 0 {
		epoch = max(epoch, d.latest+Apart)
	}
	l := &Life{Header: Header{Agent: agent, Epoch: epoch}, dir: d, log: log{seal: newSeal(d.secret)}, pages: pages{name: d.name(epoch)}}
	l.Host, _ = os.Hostname() // for people
	if err := l.pages.more(); err != nil {
		return nil, err
	}
	l.pages.next = 1 // the first cell says whether the life is void
	if l.file, err = os.OpenFile(d.name(epoch)+".log", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return nil, errors.Join(err, l.pages.remove())
	}
	l.Header = d.stamp(l.Header)
	body, err := json.Marshal(l.Header)
	if err == nil {
		err = l.append(body)
	}
	if err == nil {
		err = l.Sync()
	}
	if err == nil {
		err = d.sync()
	}
	if err != nil {
		return nil, errors.Join(err, l.file.Close(), os.Remove(l.file.Name()), l.pages.remove())
	}
	d.latest = epoch
	return l, nil
}

// Resume reads a life that has ended, calls f for each of its records, and goes on after the last whole one.
// Under a secret it goes on after the last one that verifies. It keeps aside what is behind that: Refused has
// the file.
func (d *Dir) Resume(h Header, f func(body []byte) error) (_ *Life, err error) {
	l := &Life{Header: h, dir: d, log: log{seal: newSeal(d.secret)}, pages: pages{name: d.name(h.Epoch)}, resumed: true}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("life %d: %w", h.Epoch, err), l.Close())
		}
	}()
	// Under a secret the log alone vouches for what it seals, whatever has become of the cells: At says which are missing.
	if err := l.pages.open(); err != nil && (l.seal == nil || !errors.Is(err, ErrDamaged)) {
		return nil, err
	}
	switch {
	case len(l.pages.maps) > 0:
		if l.Marked, err = d.givenUp(&h, l.pages.maps[0]); err != nil {
			return nil, err
		}
	case l.seal == nil:
		return nil, fmt.Errorf("%w: it has no cells", ErrDamaged)
	}
	if l.file, err = os.OpenFile(d.name(h.Epoch)+".log", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	first := true
	err = l.read(func(body []byte) error {
		if first {
			first = false
			return nil
		}
		return f(body)
	})
	if err != nil && (!errors.Is(err, ErrSeal) || first) {
		return nil, err
	}
	if l.seal != nil {
		if l.Refused, err = l.refuse(err); err != nil {
			return nil, err
		}
	}
	l.room = l.size
	return l, l.file.Truncate(l.size)
}

// Append writes a record. The record survives a kill of the process, and after Sync a crash of the machine.
// After an error the life is void: the records no longer follow what is done. A life that was resumed and not
// synced yet has done nothing: it may be resumed again.
func (l *Life) Append(body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.void != nil {
		return l.void
	}
	if err := l.append(body); err != nil {
		l.giveUpLocked(err)
		return l.void
	}
	l.written++
	if l.next != nil && l.next.append(body) != nil {
		l.dropNextLocked()
	}
	return nil
}

// dropNextLocked has the log go on as it is.
func (l *Life) dropNextLocked() {
	if l.next != nil {
		_, _ = l.next.file.Close(), os.Remove(l.next.file.Name()) // the next start removes it as well
		l.next = nil
	}
}

func (l *Life) giveUpLocked(err error) {
	l.void = fmt.Errorf("%w: %w", ErrVoid, err)
	l.dropNextLocked()
	if l.said && len(l.pages.maps) > 0 {
		copy(l.pages.maps[0], l.dir.mark(&l.Header)) // a store to a page that is there cannot fail
		if err := flush(l.pages.maps[0]); err != nil {
			l.void = errors.Join(l.void, err)
		}
	}
}

// Cell returns a zero cell that nobody else has. It fails when there is no room for more.
func (l *Life) Cell() (uint32, unsafe.Pointer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.void != nil {
		return 0, nil, l.void
	}
	n, err := l.pages.take()
	if err != nil {
		return 0, nil, err
	}
	return n, l.pages.cell(n), nil
}

// Free gives a cell back that nobody can reach any more.
func (l *Life) Free(number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages.give(number)
}

// At returns the memory of a cell that a life had; nil where it had no such cell.
func (l *Life) At(number uint32) unsafe.Pointer {
	if int(number/pageCells) >= len(l.pages.maps) {
		return nil
	}
	return l.pages.cell(number)
}

// Rotate replaces the log at one stroke. The new log has the records that write adds, which say all that is
// still of interest, and those appended from then on. put, which is called once, makes the replacement. The old
// log is kept for a time, as a drained one's. If anything fails, the log goes on as it is. put waits for the
// disk, and holds up nobody meanwhile.
func (l *Life) Rotate(write func(add func(record []byte) error) error) (put func() error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.void != nil {
		return nil, l.void
	}
	if l.next != nil {
		return nil, errors.New("journal: the log is being made anew")
	}
	f, err := os.OpenFile(l.dir.name(l.Epoch)+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	next := &log{file: f, seal: newSeal(l.dir.secret)}
	l.next = next
	header, err := json.Marshal(l.dir.stamp(l.Header))
	if err == nil {
		err = next.append(header)
	}
	if err == nil {
		err = write(next.append)
	}
	if err != nil {
		l.dropNextLocked()
		return nil, err
	}
	return func() error { return l.put(next) }, nil
}

// putTries is how often the growing new log is synced before others are held up for the rest.
const putTries = 3

func (l *Life) put(next *log) error {
	var synced int64
	for range putTries {
		l.mu.Lock()
		size, dropped, maps := next.size, l.next != next, l.pages.maps
		l.mu.Unlock()
		if dropped || size == synced {
			break
		}
		if err := errors.Join(flushAll(maps), next.file.Sync()); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.dropNextLocked()
			return err
		}
		synced = size
	}
	if err := l.replace(next, synced); err != nil {
		return err
	}
	return l.dir.sync()
}

// replace puts the new log in the place of the old one.
func (l *Life) replace(next *log, synced int64) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != next {
		return cmp.Or(l.void, errors.New("journal: the new log could not be written"))
	}
	defer func() {
		if err != nil {
			l.dropNextLocked()
		}
	}()
	if next.size != synced {
		if err := next.file.Sync(); err != nil {
			return err
		}
	}
	name := l.dir.name(l.Epoch)
	l.rotated++
	if err := os.Link(name+".log", fmt.Sprintf("%s.%d%s", name, l.rotated, drained)); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name+".log"); err != nil {
		return err
	}
	old := l.file
	l.log, l.next, l.unnamed = *next, nil, true
	return old.Close()
}

// Size returns how long the log is.
func (l *Life) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Sync brings all that was written to the disk. If the disk fails at that, the life becomes void, once. Usage
// that is not settled then goes on without it.
func (l *Life) Sync() error {
	l.mu.Lock()
	if l.void != nil {
		l.mu.Unlock()
		return nil // nothing is made of what it says
	}
	file, maps, freed, unnamed, written := l.file, l.pages.maps, l.pages.freed, l.unnamed, l.written
	l.pages.freed = nil
	l.said = true // whatever comes of it
	l.mu.Unlock()
	err := errors.Join(file.Sync(), flushAll(maps))
	if unnamed {
		err = errors.Join(err, l.dir.sync())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.unnamed = l.unnamed && (!unnamed || l.file != file)
		l.synced = max(l.synced, written)
		l.pages.free = append(l.pages.free, freed...)
		return nil
	case !errors.Is(err, os.ErrClosed): // the log was not made anew meanwhile
		l.giveUpLocked(err)
	}
	l.pages.freed = append(l.pages.freed, freed...)
	return err
}

// Unsynced returns how many records a loss of power would take.
func (l *Life) Unsynced() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written - l.synced
}

// Run syncs every interval, until ctx ends. It returns the first failure of the disk: from then
// on a loss of power may lose more, and a kill still nothing.
func (l *Life) Run(ctx context.Context, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := l.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("journal: sync: %w", err)
		}
	}
}

// Drain ends a life that is settled wholly. Its log is kept for a time, its cells are not.
func (l *Life) Drain() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.void != nil {
		return l.void
	}
	name := l.dir.name(l.Epoch)
	l.dropNextLocked()
	return errors.Join(l.file.Sync(), os.Rename(name+".log", name+drained), l.pages.remove(), l.dir.sync(), l.file.Close(), l.unmapLocked())
}

// Close ends the use of a life that is not drained. Cells that were handed out stay mapped.
func (l *Life) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.void = os.ErrClosed
	l.dropNextLocked()
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.unmapLocked())
}

// unmapLocked gives the memory of a resumed life's cells back; At must not be used any more. Who has the cells
// of a life that began here in hand nobody knows.
func (l *Life) unmapLocked() error {
	if !l.resumed {
		return nil
	}
	var errs []error
	for _, b := range l.pages.maps {
		errs = append(errs, unmap(b))
	}
	l.pages.maps = nil
	return errors.Join(errs...)
}

// sorted returns the epochs of files with that ending, ascending.
func (d *Dir) sorted(ending string) ([]int64, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var epochs []int64
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ending); ok {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil {
				epochs = append(epochs, n)
			}
		}
	}
	slices.Sort(epochs)
	return epochs, nil
}
