package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

var (
	// ErrCorrection means that a correction breaks a stated bound, or names what it may not. Nothing was
	// changed.
	ErrCorrection = errors.New("ledger: bad correction")
	// ErrTaken means that the key was used for another correction, or that a one-time action was done
	// differently.
	ErrTaken = errors.New("ledger: done already")
	// ErrNotFound means that the ledger has no such report, entry, correction or row.
	ErrNotFound = errors.New("ledger: not found")
)

// Kinds of corrections.
const (
	KindAdjust   = "adjust"   // units more or less, by somebody's decision
	KindBackfill = "backfill" // usage that no agent reported
	KindRelease  = "release"  // rows out of quarantine
	KindRevert   = "revert"   // takes back another correction
)

// Bounds of corrections.
const (
	MaxCorrectionKey = 128    // bytes of a key
	MaxReason        = 500    // bytes of a reason
	MaxBackfill      = 10_000 // rows of a backfill
	MaxResolved      = 1_000  // rows out of quarantine at a time
	MaxSealed        = 16     // corrections of one block
)

// EntryID names an entry: its block, and its place in it. The zero value is none.
type EntryID struct {
	Height int64
	N      int
}

// Correction is a fact that changes usage besides reports. Its entries are its own, name it, and are never
// merged with others. All its counts have one sign.
type Correction struct {
	Number int64
	// Chosen by the caller, so that sending it again does nothing. The ledger chooses it for a revert or a
	// release.
	Key      string
	Kind     string
	Negative bool    // the rows are taken away
	Payload  []byte  // rows in the canonical encoding
	Rows     int     // of the payload
	Reverts  int64   // the correction that it takes back; 0 for none
	Entry    EntryID // the entry that it corrects, where it names one
	Reason   string
	Actor    string
	At       int64 // Unix milliseconds
	Digest   [32]byte
}

// NewCorrection makes a correction of rows; their counts are as if they were added. The ledger gives number,
// actor and time. Errors wrap ErrCorrection.
func NewCorrection(kind, key string, negative bool, rows []Row, reason string) (Correction, error) {
	c := Correction{Kind: kind, Key: key, Negative: negative, Payload: EncodeRows(rows), Reason: reason}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrCorrection}, args...)...)
	}
	switch {
	case key == "" || len(key) > MaxCorrectionKey || !printable(key):
		return c, bad("its key must be 1 to %d bytes of text without control characters", MaxCorrectionKey)
	case len(rows) == 0:
		return c, bad("it has no rows")
	}
	if err := CheckReason(reason); err != nil {
		return c, err
	}
	decoded, err := DecodeRows(c.Payload)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrCorrection, err)
	}
	c.Rows = len(decoded)
	return c, nil
}

// CheckReason wants a reason that can be kept; errors wrap ErrCorrection.
func CheckReason(reason string) error {
	if reason == "" || len(reason) > MaxReason || !printable(reason) {
		return fmt.Errorf("%w: its reason must be 1 to %d bytes of text without control characters", ErrCorrection, MaxReason)
	}
	return nil
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}

// Same reports whether o and c say the same, apart from actor and time.
func (c *Correction) Same(o *Correction) bool {
	return c.Key == o.Key && c.Kind == o.Kind && c.Negative == o.Negative && bytes.Equal(c.Payload, o.Payload) &&
		c.Reverts == o.Reverts && c.Entry == o.Entry && c.Reason == o.Reason
}

// Sum returns the SHA-256 over all fields but the digest, in a fixed encoding.
func (c *Correction) Sum() [32]byte {
	b := append(make([]byte, 0, 256), "quota.correction.1\n"...)
	for _, v := range [...]int64{c.Number, c.Reverts, c.Entry.Height, int64(c.Entry.N), c.At} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	if c.Negative {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	for _, s := range [...]string{c.Key, c.Kind, c.Reason, c.Actor, string(c.Payload)} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(b)
}

// Entries are the rows as the ledger adds them up: negative if they are taken away.
func (c *Correction) Entries() ([]Row, error) {
	rows, err := DecodeRows(c.Payload)
	if err != nil {
		return nil, fmt.Errorf("correction %d: %w", c.Number, err)
	}
	if c.Negative {
		for i := range rows {
			r := &rows[i]
			r.Admitted, r.Overage, r.Denied = -r.Admitted, -r.Overage, -r.Denied
		}
	}
	return rows, nil
}

// Prefixes of the keys of the ledger's own corrections. Behind one comes the number of the reverted correction,
// or the id of the first released row.
const (
	revertKey  = "revert/"
	releaseKey = "release/"
)

// CheckKey refuses keys that the ledger makes itself. A caller that used one would keep its revert or release
// from being done. Errors wrap ErrCorrection.
func (c *Correction) CheckKey() error {
	if strings.HasPrefix(c.Key, revertKey) || strings.HasPrefix(c.Key, releaseKey) {
		return fmt.Errorf("%w: its key is %q; keys that begin with %s or %s are the ledger's own", ErrCorrection, c.Key, revertKey, releaseKey)
	}
	return nil
}

// NewRelease makes the correction of rows out of quarantine; first is the id of the first. Errors wrap
// ErrCorrection.
func NewRelease(first int64, rows []Row, reason string) (Correction, error) {
	return NewCorrection(KindRelease, fmt.Sprint(releaseKey, first), false, rows, reason)
}

// Revert is the correction that takes c back. Errors wrap ErrCorrection.
func (c *Correction) Revert(reason string) (Correction, error) {
	if c.Kind == KindRevert {
		return Correction{}, fmt.Errorf("%w: %d takes back %d, and is not taken back itself; correct anew", ErrCorrection, c.Number, c.Reverts)
	}
	rows, err := DecodeRows(c.Payload)
	if err != nil {
		return Correction{}, err
	}
	r, err := NewCorrection(KindRevert, fmt.Sprint(revertKey, c.Number), !c.Negative, rows, reason)
	r.Reverts = c.Number
	return r, err
}

// Numbers are the corrections' numbers.
func Numbers(all []Correction) []int64 {
	numbers := make([]int64, len(all))
	for i := range all {
		numbers[i] = all[i].Number
	}
	return numbers
}

// Sealed names a correction in a block.
type Sealed struct {
	Number int64
	Digest [32]byte
}

// EncodeSealed writes which corrections a block holds; none as nil.
func EncodeSealed(all []Sealed) []byte {
	var b []byte
	for _, s := range all {
		b = binary.AppendUvarint(b, uint64(s.Number))
		b = append(b, s.Digest[:]...)
	}
	return b
}

// DecodeSealed reads them back. Errors wrap ErrEncoding.
func DecodeSealed(b []byte) ([]Sealed, error) {
	d := decoder{rest: string(b)}
	var all []Sealed
	for d.rest != "" {
		s := Sealed{Number: int64(d.uvarint())}
		if d.fault != "" || len(d.rest) < len(s.Digest) {
			return nil, fmt.Errorf("%w: a block's corrections are cut short", ErrEncoding)
		}
		copy(s.Digest[:], d.rest)
		d.rest = d.rest[len(s.Digest):]
		all = append(all, s)
	}
	return all, nil
}
