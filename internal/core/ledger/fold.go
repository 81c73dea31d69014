package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Pending is a settled report that is not folded yet.
type Pending struct {
	ID      ReportID
	Closed  bool
	Payload []byte
	Held    []byte // Stored.Held
}

// Rows returns the rows that count: those that are not in quarantine.
func (p *Pending) Rows() ([]Row, error) {
	table, coded, err := p.decode()
	if err != nil {
		return nil, err
	}
	coded = p.count(coded)
	rows := make([]Row, len(coded))
	for i := range coded {
		rows[i] = coded[i].row(table)
	}
	return rows, nil
}

func (p *Pending) decode() ([]string, []codedRow, error) {
	table, rows, err := decodeCoded(p.Payload)
	if err != nil {
		return nil, nil, fmt.Errorf("settled report %s: %w", p.ID, err)
	}
	return table, rows, nil
}

// count leaves out the rows that are in quarantine.
func (p *Pending) count(rows []codedRow) []codedRow {
	held := decodeHeld(p.Held)
	if len(held) == 0 {
		return rows
	}
	kept := rows[:0]
	for i := range rows {
		if len(held) > 0 && held[0] == i {
			held = held[1:]
			continue
		}
		kept = append(kept, rows[i])
	}
	return kept
}

// Block is the result of one fold: entries, sealed. An entry is a Row. It moves Admitted units from its meter's
// account to the tenant's usage of that meter. It holds both sides, so it balances by construction. Entries are
// in the order of CompareKey, one for each key: they grow with keys, whatever the number of agents. Entries of
// corrections come after them, by correction: they name it, and their counts may be below zero.
type Block struct {
	Height      int64    // from 1, without gaps
	Previous    [32]byte // hash of the block below; zero for the first
	Hash        [32]byte
	Sources     []byte // which reports are in it, by EncodeSources
	Reports     int
	Corrections []byte // which corrections are in it, by EncodeSealed
	Merged      int    // how many of the entries are reports'
	Entries     []Row
	Names       []int64 // the correction of each entry after those
}

// Correction is the correction that an entry names; 0 for none.
func (b *Block) Correction(n int) int64 {
	if n < b.Merged {
		return 0
	}
	return b.Names[n-b.Merged]
}

// Source is a run of an epoch's reports within a block: First to Last, of which
// Count held rows; the others were heartbeats.
type Source struct {
	Epoch              Epoch
	First, Last, Count int64
}

// Sum returns the hash that seals the block: SHA-256 over its height and the hash below. It also covers the
// digests of its sources and of its reports' entries in the canonical encoding. If it holds corrections, it
// covers their numbers and digests too; their entries follow from those.
func (b *Block) Sum() [32]byte {
	sources, entries := sha256.Sum256(b.Sources), sha256.Sum256(EncodeRows(b.Entries[:b.Merged]))
	m := make([]byte, 0, 200)
	if len(b.Corrections) > 0 {
		m = append(m, "quota.block.2\n"...)
	} else {
		m = append(m, "quota.block.1\n"...)
	}
	m = binary.BigEndian.AppendUint64(m, uint64(b.Height))
	m = append(m, b.Previous[:]...)
	m = binary.BigEndian.AppendUint64(m, uint64(b.Reports))
	m = append(m, sources[:]...)
	m = append(m, entries[:]...)
	if len(b.Corrections) > 0 {
		corrections := sha256.Sum256(b.Corrections)
		m = append(m, corrections[:]...)
	}
	return sha256.Sum256(m)
}

// EncodeSources writes sources in their order.
func EncodeSources(sources []Source) []byte {
	var b []byte
	for _, s := range sources {
		b = binary.AppendUvarint(b, uint64(len(s.Epoch.Agent)))
		b = append(b, s.Epoch.Agent...)
		b = binary.AppendUvarint(b, uint64(s.Epoch.Epoch))
		b = binary.AppendUvarint(b, uint64(s.First))
		b = binary.AppendUvarint(b, uint64(s.Last-s.First))
		b = binary.AppendUvarint(b, uint64(s.Count))
	}
	return b
}

// DecodeSources reads a block's sources. Errors wrap ErrEncoding.
func DecodeSources(b []byte) ([]Source, error) {
	d := decoder{rest: string(b)}
	var sources []Source
	for d.rest != "" {
		n := d.uvarint()
		if n > uint64(len(d.rest)) {
			d.fail("a source is cut short")
			break
		}
		agent := d.rest[:n]
		d.rest = d.rest[n:]
		s := Source{Epoch: Epoch{agent, int64(d.uvarint())}, First: int64(d.uvarint())}
		s.Last = s.First + int64(d.uvarint())
		s.Count = int64(d.uvarint())
		sources = append(sources, s)
	}
	if d.fault != "" {
		return nil, fmt.Errorf("%w: %s", ErrEncoding, d.fault)
	}
	return sources, nil
}

// Key identifies a row without its slot. It is the first half of the SHA-256 over tenant, limit, meter,
// attributes, version and, if there is one, plan. Engines keep the names once per key.
type Key [16]byte

// KeyOf returns the row's key.
func KeyOf(r *Row) Key {
	b := make([]byte, 0, 256)
	for _, s := range [...]string{r.Tenant, r.Limit, r.Meter, r.Attributes} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(r.Version))
	b = append(b, r.Plan...) // the last: it needs no length
	sum := sha256.Sum256(b)
	return Key(sum[:16])
}

// Rollup is what a block adds to one key's hour.
type Rollup struct {
	Hour int64 // Unix seconds
	Key  Key
	Sum  Sum
}

// Sum is counts added up. They end at MaxSum, and at -MaxSum if more was taken away than there was. A report's
// bounds keep a block's entries below it. But nothing bounds how many reports a hostile agent sends, and an
// overflow must stop neither folding nor reading.
type Sum struct{ Admitted, Overage, Denied int64 }

// MaxSum is where sums over entries end, in roll-ups and in answers.
const MaxSum = math.MaxInt64

// Add adds o, as far as MaxSum.
func (s *Sum) Add(o Sum) {
	s.Admitted = addUp(s.Admitted, o.Admitted)
	s.Overage = addUp(s.Overage, o.Overage)
	s.Denied = addUp(s.Denied, o.Denied)
}

func addUp(a, b int64) int64 {
	switch {
	case b > 0 && a > MaxSum-b:
		return MaxSum
	case b < 0 && a < -MaxSum-b:
		return -MaxSum
	}
	return a + b
}

// SumOf is the sum of counts that were added up in two halves: high is units of 2^32, low the rest. So an
// engine whose own sums fail above MaxSum cannot fail.
func SumOf(high, low Sum) Sum {
	join := func(high, low int64) int64 {
		switch high += low >> 32; {
		case high > MaxSum>>32:
			return MaxSum
		case high < -(MaxSum >> 32):
			return -MaxSum
		}
		return high<<32 | low&(1<<32-1)
	}
	return Sum{join(high.Admitted, low.Admitted), join(high.Overage, low.Overage), join(high.Denied, low.Denied)}
}

// Roll sums a block's entries by hour and key, sorted by hour and key: the order
// in which engines lock. keys holds each entry's key.
func Roll(entries []Row, keys []Key) []Rollup {
	type at struct {
		hour int64
		key  Key
	}
	index := make(map[at]int, len(entries))
	var rolls []Rollup
	for i := range entries {
		e := &entries[i]
		k := at{e.Slot - e.Slot%3600, keys[i]}
		n, ok := index[k]
		if !ok {
			n = len(rolls)
			index[k] = n
			rolls = append(rolls, Rollup{Hour: k.hour, Key: k.key})
		}
		rolls[n].Sum.Add(Sum{e.Admitted, e.Overage, e.Denied})
	}
	slices.SortFunc(rolls, func(a, b Rollup) int {
		if a.Hour != b.Hour {
			if a.Hour < b.Hour {
				return -1
			}
			return 1
		}
		return slices.Compare(a.Key[:], b.Key[:])
	})
	return rolls
}

// Seen remembers what the engine is known to hold already, so a fold writes only what is new. When full it
// forgets all. Not safe for concurrent use.
type Seen[K comparable] struct {
	set map[K]struct{}
	max int
}

// NewSeen returns an empty set of at most max members.
func NewSeen[K comparable](max int) *Seen[K] { return &Seen[K]{set: map[K]struct{}{}, max: max} }

// Has reports whether k was added and not forgotten.
func (s *Seen[K]) Has(k K) bool { _, ok := s.set[k]; return ok }

// Add remembers k.
func (s *Seen[K]) Add(k K) {
	if len(s.set) >= s.max {
		clear(s.set)
	}
	s.set[k] = struct{}{}
}
