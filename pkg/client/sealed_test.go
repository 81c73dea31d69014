//go:build linux

package client

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/f4ee788f/quota/internal/core/journal"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// invent adds a record to the log of a killed client: so many units more of the first bucket that it knows of, as one writes it who
// may write the file and knows all but the secret.
func invent(t *testing.T, dir string, sealed bool, units int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	tag := 0
	if sealed {
		tag = 32
	}
	at, sum, cell := 0, uint32(0), int64(-1)
	for at < len(b) && binary.LittleEndian.Uint32(b[at:]) > 0 {
		n := int(binary.LittleEndian.Uint32(b[at:]))
		sum = binary.LittleEndian.Uint32(b[at+4:])
		if body := b[at+8 : at+8+n]; body[0] == 'D' && cell < 0 {
			cell, _ = binary.Varint(body[1:])
		}
		at += 8 + n + tag
	}
	if cell < 0 {
		t.Fatal("the log names no bucket")
	}
	record := []byte{'b'}
	for _, n := range []int64{time.Now().Truncate(5 * time.Minute).Unix(), cell, units, 0, 1 << 40, 0} {
		record = binary.AppendVarint(record, n)
	}
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(record)))
	sum = crc32.Update(crc32.Update(sum, table, length), table, record)
	seal := make([]byte, tag)
	sum = crc32.Update(sum, table, seal)
	whole := append(append(binary.LittleEndian.AppendUint32(length, sum), record...), seal...)
	if err := os.WriteFile(names[0], append(b[:at], whole...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whoever may write the journal's files can invent usage, which the next start settles; under a secret that they do not
// know they cannot: it is kept aside, and all else is settled.
func TestUsageCannotBeInventedUnderASecret(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for _, c := range []struct {
		what     string
		options  []Option
		invented int64 // units that the ledger believes
	}{
		{"without a secret", nil, 1_000_000},
		{"under a secret", []Option{WithJournalSecret(secret)}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
				dir := t.TempDir()
				gw := dial(t, s, append([]Option{WithJournal(dir)}, c.options...)...)
				s.set(func(f *fake) { f.ledgerOff = true })
				admitted := drive(gw, 1, 30, tenant("a"))
				time.Sleep(11 * time.Second) // frozen
				killed := taken(t, dir)
				end(t, gw)
				s.set(func(f *fake) { f.ledgerOff = false })
				invent(t, killed, c.options != nil, 1_000_000)

				next, err := Dial(t.Context(), "passthrough:fake", append([]Option{WithDialer(s.dial), WithJournal(killed)}, c.options...)...)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if got := s.billed(nil); got != admitted+c.invented {
					t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
				}
				aside, err := filepath.Glob(filepath.Join(killed, "*.refused"))
				if refused := next.Stats().JournalRefused; err != nil || (refused > 0) != (c.options != nil) || (len(aside) == 1) != (c.options != nil) {
					t.Errorf("%d bytes were refused, kept in %v, %v", refused, aside, err)
				}
				shut(t, next)
			})
		})
	}
}

// raise adds units to each cell of a killed client that was in use, as one does who may write its files.
func raise(t *testing.T, dir string, units uint64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.cells.*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	raised := 0
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := journal.CellSize; at < len(b); at += journal.CellSize { // the first is no bucket's
			for _, put := range []int{at + 4*8, at + 5*8} {
				if n := binary.LittleEndian.Uint64(b[put:]); n > 0 {
					binary.LittleEndian.PutUint64(b[put:], n+units)
					raised++
				}
			}
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if raised == 0 {
		t.Fatal("no cell was in use")
	}
}

// empty makes the ledger a new one.
func empty(s *fake) {
	s.set(func(f *fake) {
		f.unsealed = 0
		clear(f.rows)
		clear(f.seq)
		clear(f.total)
		clear(f.digest)
		clear(f.closed)
		clear(f.ends)
	})
}

// Whoever may write the cells of a killed client, and does not know its secret, bills nobody: what the journal has sealed is
// billed, and what cells have beyond that is in quarantine, whoever put it there. A client that ends leaves nothing such.
func TestRaisedCellsBillNobodyUnderASecret(t *testing.T) {
	for _, c := range []struct {
		what   string
		raised uint64
	}{{"killed", 0}, {"killed, and cells raised by a few", 500}, {"by what overflows", 1 << 62}} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
				secret := WithJournalSecret([]byte("0123456789abcdef"))
				dir := t.TempDir()
				gw := dial(t, s, WithJournal(dir), secret, WithReportInterval(time.Minute))
				time.Sleep(2 * time.Second) // its first report is sent
				sealed := drive(gw, 1, 30, tenant("a"))
				time.Sleep(2500 * time.Millisecond) // between two seals
				last := drive(gw, 1, 7, tenant("a"))
				killed, again := taken(t, dir), taken(t, dir)
				shut(t, gw)
				if n := s.billed(nil); n != sealed+last || s.unsealed != 0 {
					t.Fatalf("ended: %d units are billed and %d unsealed, want all %d billed", n, s.unsealed, sealed+last)
				}
				empty(s)
				if c.raised > 0 {
					raise(t, killed, c.raised)
				}
				r, err := Recover(t.Context(), "passthrough:fake", killed, WithDialer(s.dial), secret)
				if err != nil {
					t.Fatal(err)
				}
				if n := s.billed(nil); n != sealed {
					t.Errorf("%d units are billed, want those that were sealed, %d", n, sealed)
				}
				want := last + int64(c.raised)
				if c.raised > 1<<50 {
					want = ledger.MaxTotal / 4
				}
				if n := s.unsealed; n != want || len(r.Lives) != 1 || r.Lives[0].Unsealed != n || r.Lives[0].Units != sealed+n || r.Usage[0].Admitted != sealed+n {
					t.Errorf("%d units are in quarantine, want %d; it says %+v", n, want, r.Lives)
				}
				empty(s) // as a ledger that went back: it is sent again, and what was unsealed still is
				if r, err = Recover(t.Context(), "passthrough:fake", killed, WithDialer(s.dial), secret); err != nil || r.ResentUnits != sealed+want {
					t.Errorf("sent again: %+v, %v", r, err)
				}
				if n := s.billed(nil); n != sealed || s.unsealed != want {
					t.Errorf("sent again: %d units are billed and %d in quarantine, want %d and %d", n, s.unsealed, sealed, want)
				}
				empty(s)
				next := dial(t, s, WithJournal(again), secret)
				time.Sleep(time.Second)
				if st := next.Stats(); st.UnitsUnsealed != last || st.UnitsRecovered != sealed+last || s.billed(nil) != sealed || s.unsealed != last {
					t.Errorf("at the next start %d units are billed and %d unsealed, want %d and %d: %+v", s.billed(nil), s.unsealed, sealed, last, st)
				}
				shut(t, next)
			})
		})
	}
}

// A journal goes on with the secret that it was written under; with another, or none, the start is refused, and all stays for the one
// that knows it. One without is settled before it gets one.
func TestAJournalKeepsItsSecret(t *testing.T) {
	bubble(t, plans(1, limit.Limit{Name: "requests", Rate: perSecond(1000), Burst: 1000, Meter: "requests"}), func(t *testing.T, s *fake) {
		secret := WithJournalSecret([]byte("0123456789abcdef"))
		begin := func(dir string, options ...Option) (*Client, error) {
			return Dial(t.Context(), "passthrough:fake", append([]Option{WithDialer(s.dial), WithAgent("gw-1"), WithJournal(dir)}, options...)...)
		}
		left := func(options ...Option) (dir string, admitted int64) {
			t.Helper()
			dir = t.TempDir()
			c := dial(t, s, append([]Option{WithJournal(dir)}, options...)...)
			s.set(func(f *fake) { f.ledgerOff = true })
			admitted = drive(c, 1, 30, tenant("a"))
			time.Sleep(11 * time.Second)
			killed := taken(t, dir)
			end(t, c)
			s.set(func(f *fake) { f.ledgerOff = false })
			return killed, admitted
		}
		sealed, admitted := left(secret)
		for what, o := range map[string][]Option{"none": nil, "another": {WithJournalSecret([]byte("another secret of it"))}} {
			_, err := begin(sealed, o...)
			if want := map[string]error{"none": journal.ErrSealed, "another": journal.ErrSeal}[what]; !errors.Is(err, ErrJournal) || !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		c, err := begin(sealed, secret)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := s.billed(nil); got != admitted {
			t.Errorf("the ledger has %d units, %d were admitted", got, admitted)
		}
		shut(t, c)

		plain, more := left()
		if _, err := begin(plain, secret); !errors.Is(err, journal.ErrUnsealed) || !strings.Contains(err.Error(), "was under a secret before, somebody put it there: move it aside") {
			t.Errorf("a journal without a secret: %v", err)
		}
		if r := recoverAll(t, s, plain); len(r.Lives) != 1 || s.billed(nil) != admitted+more {
			t.Errorf("settled without: %+v", r)
		}
		forged, last := left(secret)
		invent(t, forged, true, 1_000_000)
		if r, err := Recover(t.Context(), "passthrough:fake", forged, WithDialer(s.dial), secret); err != nil || r.Refused == 0 || s.billed(nil) != admitted+more+last {
			t.Errorf("recovered: %+v, %v", r, err)
		}
		if c, err = begin(plain, secret); err != nil {
			t.Fatalf("a journal of which all is settled: %v", err)
		}
		shut(t, c)
		for what, o := range map[string][]Option{"a short one": {WithJournal(plain), WithJournalSecret([]byte("short"))}, "no journal": {secret}} {
			if _, err := Dial(t.Context(), "passthrough:fake", append(o, WithDialer(s.dial))...); !errors.Is(err, ErrOption) {
				t.Errorf("%s: %v, want %v", what, err, ErrOption)
			}
		}
	})
}
