package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// own makes sure that nobody else reads or writes the files of an embedded database: it has the hashes of keys, usage
// and prices. New files are made private, and files that are more open are closed. So is a directory that holds nothing
// else. A directory that others may write to is refused.
func own(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // those beside it get its mode
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm", path + ".lock"} {
		if err := tighten(name); err != nil {
			return err
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 || !only(dir, filepath.Base(path)) {
		if info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
			return fmt.Errorf("%s may be written by others, who could put another database in place of this one: chmod go-w it, or give the database a directory of its own", dir)
		}
		return nil
	}
	if err := os.Chmod(dir, info.Mode().Perm()&0o700); err != nil {
		return fmt.Errorf("%s is open to others, and cannot be closed: %w", dir, err)
	}
	return nil
}

// tighten removes others' permissions on a file of ours.
func tighten(name string) error {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		if err := os.Chmod(name, mode&0o700); err != nil {
			return fmt.Errorf("%s is open to others, and cannot be closed: %w", name, err)
		}
	}
	return nil
}

// only reports whether a directory holds nothing but a database's files.
func only(dir, base string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		switch e.Name() {
		case base, base + "-wal", base + "-shm", base + ".lock":
		default:
			return false
		}
	}
	return true
}
