//go:build linux

package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var secret = []byte("a secret of this test")

// framed is a record with its seal, as it is in a log.
type framed struct{ body, tag []byte }

// sealedLife writes a life under a secret with records named by its directory, and ends it as a kill does.
func sealedLife(t *testing.T, secret []byte, records int) (path string) {
	t.Helper()
	path = t.TempDir()
	d, err := Open(path, secret)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Begin("gw", 5)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := l.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	leave(t, d, l)
	return path
}

// unframe reads a sealed log as one does who has no secret, but knows all else.
func unframe(t *testing.T, path string) (all []framed) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path, "5.log"))
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > frame {
		n := int(binary.LittleEndian.Uint32(b))
		if n == 0 {
			break
		}
		all = append(all, framed{b[frame : frame+n], b[frame+n : frame+n+tagSize]})
		b = b[frame+n+tagSize:]
	}
	return all
}

// forge writes records with the checksums that they should have.
func forge(t *testing.T, path string, all []framed) {
	t.Helper()
	var b []byte
	sum := uint32(0)
	for _, r := range all {
		length := binary.LittleEndian.AppendUint32(nil, uint32(len(r.body)))
		sum = crc32.Update(crc32.Update(crc32.Update(sum, castagnoli, length), castagnoli, r.body), castagnoli, r.tag)
		b = append(append(append(binary.LittleEndian.AppendUint32(append(b, length...), sum), r.body...), r.tag...), nil...)
	}
	if err := os.WriteFile(filepath.Join(path, "5.log"), append(b, make([]byte, 100)...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// resumeSealed returns the only life's records, and what was refused.
func resumeSealed(path string, secret []byte) (records []string, r Refused, err error) {
	d, err := Open(path, secret)
	if err != nil {
		return nil, r, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	lives, err := d.Lives()
	if err != nil || len(lives) != 1 {
		return nil, r, errors.Join(err, fmt.Errorf("%d lives", len(lives)))
	}
	l, err := d.Resume(lives[0], func(body []byte) error {
		records = append(records, string(body))
		return nil
	})
	if err != nil {
		return records, r, err
	}
	return records, l.Refused, errors.Join(l.Append([]byte("more")), l.Close())
}

// Somebody who can write the file, but has no secret, cannot make, change or move a record. What is behind the
// first record that does not verify is not read, and is kept aside.
func TestASealedLogIsNotBelievedWhereItWasChanged(t *testing.T) {
	const records = 6
	another := unframe(t, sealedLife(t, secret, records)) // of the same agent and epoch, with the same records
	underAnother := unframe(t, sealedLife(t, []byte("another secret of it"), records))
	for _, c := range []struct {
		what   string
		change func(all []framed) []framed // all[0] is the header
		want   int                         // records that are believed
	}{
		{"nothing", func(all []framed) []framed { return all }, records},
		{"a record changed", func(all []framed) []framed {
			all[3].body = bytes.Replace(all[3].body, []byte("2"), []byte("9"), 1)
			return all
		}, 2},
		{"a seal changed", func(all []framed) []framed { all[6].tag = make([]byte, tagSize); return all }, 5},
		{"two changed places", func(all []framed) []framed { all[2], all[3] = all[3], all[2]; return all }, 1},
		{"one left out", func(all []framed) []framed { return slices.Delete(all, 4, 5) }, 3},
		{"one twice", func(all []framed) []framed { return slices.Insert(all, 4, all[3]) }, 3},
		{"one added", func(all []framed) []framed { return append(all, framed{[]byte("record 6"), all[6].tag}) }, 6},
		{"another log's rest", func(all []framed) []framed { return append(all[:3], another[3:]...) }, 2},
		{"another log's last", func(all []framed) []framed { all[6] = another[6]; return all }, 5},
		{"a rest under another secret", func(all []framed) []framed { return append(all[:5], underAnother[5:]...) }, 4},
		{"the last ones cut off", func(all []framed) []framed { return all[:4] }, 3}, // which nobody can tell from an earlier kill
	} {
		t.Run(c.what, func(t *testing.T) {
			path := sealedLife(t, secret, records)
			changed := c.change(unframe(t, path))
			forge(t, path, changed)
			was, err := os.ReadFile(filepath.Join(path, "5.log"))
			if err != nil {
				t.Fatal(err)
			}
			got, refused, err := resumeSealed(path, secret)
			if err != nil || len(got) != c.want {
				t.Fatalf("%d records are believed, want %d: %q, %v", len(got), c.want, got, err)
			}
			for i, r := range got {
				if r != fmt.Sprintf("record %d", i) {
					t.Errorf("record %d is %q", i, r)
				}
			}
			if behind := len(changed) > c.want+1; behind != (refused.File != "") || behind != errors.Is(refused.Why, ErrSeal) {
				t.Fatalf("refused: %+v, want something: %v", refused, behind)
			}
			if refused.File != "" {
				kept, err := os.ReadFile(refused.File)
				if err != nil || int64(len(kept)) != refused.Bytes || len(kept) == 0 || !bytes.Contains(was, kept) {
					t.Errorf("kept aside: %d bytes of %d, %v", len(kept), refused.Bytes, err)
				}
			}
			// It went on after what it believes, under the secret.
			if after, again, err := resumeSealed(path, secret); err != nil || len(after) != c.want+1 || after[c.want] != "more" || again.File != "" {
				t.Errorf("afterwards: %q, %+v, %v", after, again, err)
			}
		})
	}
}

// A sealed log that is cut, or has a wrong byte, is believed up to there, as one without seals is. What is
// behind a wrong byte is kept aside.
func TestASealedLogIsTorn(t *testing.T) {
	path := sealedLife(t, secret, 3)
	whole, err := os.ReadFile(filepath.Join(path, "5.log"))
	if err != nil {
		t.Fatal(err)
	}
	all := unframe(t, path)
	first := frame + len(all[0].body) + tagSize
	each := frame + len("record 0") + tagSize
	for at := first; at < first+3*each; at++ {
		want := (at - first) / each
		wrong := slices.Clone(whole)
		wrong[at] ^= 0x40
		for what, content := range map[string][]byte{"cut": whole[:at], "wrong": wrong} {
			if err := os.WriteFile(filepath.Join(path, "5.log"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			records, refused, err := resumeSealed(path, secret)
			if err != nil || len(records) != want {
				t.Errorf("%s at byte %d: %d records, want %d: %v", what, at, len(records), want, err)
			}
			if behind := what == "wrong" || (at-first)%each > 0; behind != (refused.File != "") {
				t.Errorf("%s at byte %d: kept aside: %+v", what, at, refused)
			}
		}
	}
}

// A journal is opened only under the secret that it was written under. If it has none, it is opened only
// without. Otherwise nothing is settled, and nothing is removed.
func TestSecretsGoWithJournals(t *testing.T) {
	header := func(path string, change func(h *Header)) {
		all := unframe(t, path)
		var h Header
		if err := json.Unmarshal(all[0].body, &h); err != nil {
			t.Fatal(err)
		}
		change(&h)
		all[0].body, _ = json.Marshal(h)
		forge(t, path, all)
	}
	for _, c := range []struct {
		what           string
		written, given []byte
		change         func(h *Header)
		want           error
	}{
		{"another secret", secret, []byte("another secret of it"), nil, ErrSeal},
		{"none given", secret, nil, nil, ErrSealed},
		{"none when it was written", nil, secret, nil, ErrUnsealed},
		{"another agent's name", secret, secret, func(h *Header) { h.Agent = "other" }, ErrSeal},
		{"another salt", secret, secret, func(h *Header) { h.Salt = "other" }, ErrSeal},
		{"a header that says there are no seals", secret, secret, func(h *Header) { h.Format = plainFormat }, ErrUnsealed},
	} {
		path := sealedLife(t, c.written, 3)
		if c.change != nil {
			header(path, c.change)
		}
		before, err := os.ReadFile(filepath.Join(path, "5.log"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := resumeSealed(path, c.given); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		if after, err := os.ReadFile(filepath.Join(path, "5.log")); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s: the log was changed: %v", c.what, err)
		}
	}
	if _, err := Open(t.TempDir(), []byte("short")); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("a short secret: %v", err)
	}
}

// A log that is made anew is under a chain of its own, and the part before stays readable: neither has the other's records.
func TestASealedLogIsMadeAnew(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, secret)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Begin("gw", 5)
	if err != nil {
		t.Fatal(err)
	}
	put, err := l.Rotate(func(add func([]byte) error) error { return add([]byte("record 0")) })
	if err == nil {
		err = errors.Join(l.Append([]byte("record 1")), put(), l.Append([]byte("record 2")))
	}
	if err != nil {
		t.Fatal(err)
	}
	logs, err := d.Kept()
	if err != nil || len(logs) != 2 || logs[0].Salt == logs[1].Salt || logs[0].Salt == "" {
		t.Fatalf("logs: %+v, %v", logs, err)
	}
	for i, want := range []string{"record 1", "record 0 record 1 record 2"} {
		var got []string
		if err := d.Read(logs[i], func(body []byte) error { got = append(got, string(body)); return nil }); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v; want %q", logs[i].Name, got, err, want)
		}
	}
	leave(t, d, l)
	old := filepath.Join(path, logs[0].Name)
	if err := os.Rename(old, filepath.Join(path, "5.log")); err != nil { // an earlier file whole: nobody can tell
		t.Fatal(err)
	}
	if got, refused, err := resumeSealed(path, secret); err != nil || strings.Join(got, " ") != "record 1" || refused.File != "" {
		t.Errorf("an earlier file: %q, %+v, %v", got, refused, err)
	}
}

// A settled log that was changed is read up to there, and says so. One that is not under the secret is not
// read, and keeps none of the others back.
func TestSettledLogsAreNotBelieved(t *testing.T) {
	path := sealedLife(t, secret, 3)
	all := unframe(t, path)
	all[2].body = []byte("record 9")
	forge(t, path, all)
	plain := sealedLife(t, nil, 3)
	for from, to := range map[string]string{filepath.Join(path, "5.log"): "5.settled", filepath.Join(plain, "5.log"): "6.settled"} {
		if err := os.Rename(from, filepath.Join(path, to)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(path, secret)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	logs, err := d.Kept()
	if !errors.Is(err, ErrUnsealed) || len(logs) != 1 {
		t.Fatalf("logs: %+v, %v", logs, err)
	}
	n := 0
	if err := d.Read(logs[0], func([]byte) error { n++; return nil }); !errors.Is(err, ErrSeal) || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
	if agent, err := d.Agent(); err != nil || agent != "gw" {
		t.Errorf("whose it was: %q, %v", agent, err)
	}
}

// Only who has the secret can say that a life was given up: a byte in the cells, or what another life said, takes nothing.
func TestALifeIsGivenUpUnderTheSecret(t *testing.T) {
	given := func(epoch int64) (path string, cells []byte) {
		path = t.TempDir()
		d, err := Open(path, secret)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.Begin("gw", epoch)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Append([]byte("record 0")), l.Sync()); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		l.giveUpLocked(errors.New("the disk is full"))
		l.mu.Unlock()
		leave(t, d, l)
		if cells, err = os.ReadFile(filepath.Join(path, fmt.Sprint(epoch, ".cells.0"))); err != nil {
			t.Fatal(err)
		}
		return path, cells[:CellSize]
	}
	path, mark := given(5)
	_, another := given(6)
	for _, c := range []struct {
		what   string
		cell   []byte
		void   bool
		marked bool
	}{
		{"as it was", mark, true, false},
		{"a byte", []byte{1}, false, true},
		{"what another life said", another, false, true},
		{"a byte behind it", append(make([]byte, CellSize-1), 1), false, true},
		{"nothing", make([]byte, CellSize), false, false}, // as before it was given up
	} {
		f, err := os.OpenFile(filepath.Join(path, "5.cells.0"), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.Write(append(c.cell, make([]byte, CellSize-len(c.cell))...))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := Open(path, secret)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		l, err := d.Resume(Header{Format: sealedFormat, Agent: "gw", Epoch: 5}, func([]byte) error { n++; return nil })
		switch {
		case c.void:
			if !errors.Is(err, ErrVoid) {
				t.Errorf("%s: %v, want %v", c.what, err, ErrVoid)
			}
		case err != nil || n != 1 || l.Marked != c.marked:
			t.Errorf("%s: %d records, %v, want the one that there is", c.what, n, err)
		}
		if l != nil {
			err = l.Close()
		}
		if err := errors.Join(err, d.Close()); err != nil && !c.void {
			t.Error(err)
		}
	}
}
