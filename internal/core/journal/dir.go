package journal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// drained ends the name of a log that is settled wholly.
	drained = ".settled"
	// voided ends the name of a log that was given up.
	voided = ".void"
)

// Dir is a directory of lives, which this process alone has.
type Dir struct {
	path   string
	lock   *os.File
	latest int64  // epoch
	secret []byte // that logs are under; nil for none
}

// Open takes the directory, and makes it if it is not there. secret, of at least MinSecret bytes, is what logs are
// written under, and without which none is believed; nil for none.
func Open(path string, secret []byte) (*Dir, error) {
	if secret != nil && len(secret) < MinSecret {
		return nil, fmt.Errorf("journal %s: its secret has %d bytes; at least %d, or it could be guessed", path, len(secret), MinSecret)
	}
	d, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	d.secret = secret
	return d, nil
}

func open(path string) (*Dir, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return nil, fmt.Errorf("%w: its mode is %#o: chmod go-w it, or give a directory below it", ErrOpen, mode)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: f}
	switch mine, err := lock(f); {
	case err != nil:
		return nil, errors.Join(err, f.Close())
	case !mine:
		return nil, errors.Join(ErrBusy, f.Close())
	}
	if err := d.tidy(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// tidy removes cells whose log is not there: of a life that did not come to begin, or is drained.
func (d *Dir) tidy() error {
	for _, ending := range []string{".log", drained, voided} {
		epochs, err := d.sorted(ending)
		if err != nil {
			return err
		}
		if len(epochs) > 0 {
			d.latest = max(d.latest, epochs[len(epochs)-1])
		}
	}
	unfinished, err := filepath.Glob(filepath.Join(d.path, "*.new"))
	if err != nil {
		return err
	}
	for _, name := range unfinished {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	cells, err := filepath.Glob(filepath.Join(d.path, "*.cells.*"))
	if err != nil {
		return err
	}
	for _, name := range cells {
		life, _, _ := strings.Cut(name, ".cells.")
		if _, err := os.Stat(life + ".log"); os.IsNotExist(err) {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Path returns where it is.
func (d *Dir) Path() string { return d.path }

// Close gives the directory up.
func (d *Dir) Close() error { return d.lock.Close() }

// Lives returns the lives that are not settled, oldest first.
func (d *Dir) Lives() (lives []Header, err error) {
	epochs, err := d.sorted(".log")
	if err != nil {
		return nil, err
	}
	for _, epoch := range epochs {
		h, ok, err := d.header(epoch, ".log")
		if err != nil {
			return nil, err
		}
		if !ok {
			if err := d.neverBegan(epoch); err != nil {
				return nil, fmt.Errorf("life %d: %w", epoch, err)
			}
			if err := errors.Join((&pages{name: d.name(epoch)}).remove(), os.Remove(d.name(epoch)+".log")); err != nil {
				return nil, err
			}
			continue
		}
		lives = append(lives, h)
	}
	return lives, nil
}

// Agent returns whose the latest life was; empty where there was none.
func (d *Dir) Agent() (agent string, err error) {
	var latest int64
	for _, ending := range []string{".log", drained} {
		epochs, err := d.sorted(ending)
		if err != nil {
			return "", err
		}
		for i := len(epochs) - 1; i >= 0 && epochs[i] > latest; i-- {
			h, ok, err := d.header(epochs[i], ending)
			if ending == drained && (errors.Is(err, ErrSeal) || errors.Is(err, ErrSealed) || errors.Is(err, ErrUnsealed)) {
				continue // it is not believed, and nothing of it is to be settled
			}
			if err != nil {
				return "", err
			}
			if ok {
				agent, latest = h.Agent, epochs[i]
			}
		}
	}
	return agent, nil
}

// maxHeader is more bytes than a life's first record has.
const maxHeader = 1024

// neverBegan returns nil for a life that ended before its first record was on the disk: nothing was counted by
// then. If the life did begin and its first record cannot be read, it is ErrDamaged. What it counted must not
// go without a word.
func (d *Dir) neverBegan(epoch int64) error {
	info, err := os.Stat(d.name(epoch) + ".log")
	if err != nil {
		return err
	}
	if info.Size() > maxHeader {
		return fmt.Errorf("%w: its first record cannot be read, and there are more", ErrDamaged)
	}
	for i := 0; ; i++ {
		body, err := os.ReadFile((&pages{name: d.name(epoch)}).file(i))
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(body, func(b byte) bool { return b != 0 }) {
			return fmt.Errorf("%w: its first record cannot be read, and its cells have counted", ErrDamaged)
		}
	}
}

// header reads a life's first record; false where there is none.
func (d *Dir) header(epoch int64, ending string) (h Header, ok bool, err error) {
	f, err := os.Open(d.name(epoch) + ending)
	if err != nil {
		return h, false, err
	}
	defer func() { _ = f.Close() }() // it was only read
	errFirst := errors.New("the first")
	l := log{file: f, seal: newSeal(d.secret)}
	err = l.read(func(body []byte) error {
		if err := json.Unmarshal(body, &h); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if h.Format != plainFormat && h.Format != sealedFormat {
			return fmt.Errorf("%w: %d, not %d or %d", ErrFormat, h.Format, plainFormat, sealedFormat)
		}
		if h.Epoch != epoch {
			return fmt.Errorf("%w: it says that it is %d", ErrDamaged, h.Epoch)
		}
		return errFirst
	})
	if errors.Is(err, errFirst) {
		return h, true, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("life %d: %w", epoch, err)
	}
	return h, false, nil
}

// SetAside renames the log of a void life, so that it is not taken up again: it is kept as if it were written now.
func (d *Dir) SetAside(h Header, now time.Time) error {
	name := d.name(h.Epoch)
	return errors.Join(os.Chtimes(name+".log", now, now), os.Rename(name+".log", name+voided), d.sync())
}

// Prune removes settled and given-up logs that are older than age. Of those left it removes the oldest beyond
// size bytes in all. By then neither kind is of use to a ledger that went back.
func (d *Dir) Prune(now time.Time, age time.Duration, size int64) error {
	var names []string
	for _, ending := range []string{drained, voided} {
		some, err := filepath.Glob(filepath.Join(d.path, "*"+ending))
		if err != nil {
			return err
		}
		names = append(names, some...)
	}
	var err error
	written := make(map[string]os.FileInfo)
	for _, name := range names {
		if written[name], err = os.Stat(name); err != nil {
			return err
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		// A file's time goes in ticks of some milliseconds: of two of the same tick the later life is the newer.
		return cmp.Or(written[b].ModTime().Compare(written[a].ModTime()), cmp.Compare(len(b), len(a)), strings.Compare(b, a))
	})
	var errs []error
	for _, name := range names {
		if size -= written[name].Size(); size < 0 || now.Sub(written[name].ModTime()) > age {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// sync brings the names of files to the disk.
func (d *Dir) sync() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
