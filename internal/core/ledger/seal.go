package ledger

import (
	"maps"
	"slices"
)

// Bounds of one block, so that a fold takes bounded memory and time. Reports are read a page at a time, as long
// as the block is within its bounds. Of a page that was read, memory holds entries, and new notes of which
// epochs touched which tenants. So a block has one entry for each key and slot of its reports, whatever the
// number of agents.
const (
	MaxBlockReports = 5_000
	MaxBlockRows    = 8_000_000
	MaxBlockBytes   = 512 << 20 // by Stored.Size
	MaxBlockEntries = 250_000   // and at most another page's; likewise
	MaxBlockNames   = 16 << 20  // bytes of entries' names
	MaxBlockTouches = 250_000   // notes that are new

	MaxPageRows  = 500_000
	MaxPageBytes = 32 << 20
)

// MaxHalved is how often the bounds are halved at most. Blocks then have one report.
const MaxHalved = 13

// Waiting is a report in the queue: Size is Stored.Size.
type Waiting struct {
	ID   int64
	Rows int
	Size int
}

// Pages cuts the oldest reports of a queue, in the order of id, into pages for one block. Bounds are halved so
// many times, after a fold that was too much. The first report of a page, and of a block, is in it whatever its
// size.
func Pages(queue []Waiting, halved int) [][]int64 {
	var pages [][]int64
	rows, size, pageRows, pageSize := 0, 0, 0, 0
	for i, w := range queue {
		rows, size = rows+w.Rows, size+w.Size
		if i > 0 && (i >= MaxBlockReports>>halved || rows > MaxBlockRows>>halved || size > MaxBlockBytes>>halved) {
			break
		}
		pageRows, pageSize = pageRows+w.Rows, pageSize+w.Size
		if i == 0 || pageRows > MaxPageRows>>halved || pageSize > MaxPageBytes>>halved {
			pages, pageRows, pageSize = append(pages, nil), w.Rows, w.Size
		}
		last := len(pages) - 1
		pages[last] = append(pages[last], w.ID)
	}
	return pages
}

// Sealing is a block in the making. Not safe for concurrent use.
type Sealing struct {
	known   *Notes
	reports int
	sums    *merged
	sources map[Epoch]*Source
	closed  map[Epoch]struct{}
	touched map[Touch]struct{}
	settled settled
}

// NewSealing returns a block without reports, for an engine that holds the known notes. It does not change
// them.
func NewSealing(known *Notes) *Sealing {
	return &Sealing{
		known: known, sums: newMerged(), sources: map[Epoch]*Source{}, closed: map[Epoch]struct{}{},
		touched: map[Touch]struct{}{}, settled: settled{},
	}
}

// Add adds a report. It keeps nothing of it but what it adds to the block. Errors wrap ErrEncoding; the whole
// block is then to be thrown away.
func (s *Sealing) Add(p *Pending) error {
	table, rows, err := p.decode()
	if err != nil {
		return err
	}
	epoch := p.ID.Epoch
	s.settled.add(epoch, table, rows)
	rows = p.count(rows)
	known := s.known.Of(epoch)
	for i := range rows {
		if t := rows[i].tenant; i == 0 || t != rows[i-1].tenant {
			if !known.Has(table[t]) {
				s.touched[NewTouch(epoch, table[t])] = struct{}{}
			}
		}
	}
	s.sums.add(table, rows)
	if p.Closed {
		s.closed[epoch] = struct{}{}
	}
	s.reports++
	if of, ok := s.sources[epoch]; ok {
		of.First, of.Last = min(of.First, p.ID.Seq), max(of.Last, p.ID.Seq)
		of.Count++
	} else {
		s.sources[epoch] = &Source{Epoch: epoch, First: p.ID.Seq, Last: p.ID.Seq, Count: 1}
	}
	return nil
}

// Reports is how many were added.
func (s *Sealing) Reports() int { return s.reports }

// Full reports whether the block takes no other page, its bounds halved so many times.
func (s *Sealing) Full(halved int) bool {
	return len(s.sums.sums) > MaxBlockEntries>>halved || s.sums.named > MaxBlockNames>>halved ||
		len(s.touched)+len(s.settled) > MaxBlockTouches>>halved
}

// Folded is what else a fold writes of its reports.
type Folded struct {
	Touched map[Touch]struct{} // which tenants were touched, where that is new, by epochs that did not close
	Closed  []Epoch            // epochs that closed, sorted
	Settled []SettledUnits     // sorted by account
}

// SettledUnits is units of one limit that an epoch's reports hold, those in quarantine included.
type SettledUnits struct {
	ID    AccountID
	Units int64
}

// Seal ends the block, above the given one, with corrections. It also returns what
// else of the reports is to be written. Nothing may be added afterwards.
func (s *Sealing) Seal(height int64, previous [32]byte, corrections []Correction) (Block, Folded, error) {
	b := Block{Height: height + 1, Previous: previous, Reports: s.reports, Entries: s.sums.rows()}
	b.Merged = len(b.Entries)
	sources := make([]Source, 0, len(s.sources))
	for _, of := range s.sources {
		sources = append(sources, *of)
	}
	slices.SortFunc(sources, func(a, b Source) int { return a.Epoch.compare(b.Epoch) })
	b.Sources = EncodeSources(sources)
	var sealed []Sealed
	for i := range corrections {
		c := &corrections[i]
		entries, err := c.Entries()
		if err != nil {
			return Block{}, Folded{}, err
		}
		sealed = append(sealed, Sealed{c.Number, c.Digest})
		for _, e := range entries {
			b.Entries, b.Names = append(b.Entries, e), append(b.Names, c.Number)
		}
	}
	b.Corrections = EncodeSealed(sealed)
	b.Hash = b.Sum()
	maps.DeleteFunc(s.touched, func(t Touch, _ struct{}) bool { _, over := s.closed[t.Epoch()]; return over })
	return b, Folded{s.touched, slices.SortedFunc(maps.Keys(s.closed), Epoch.compare), s.settled.sorted()}, nil
}

// Settled adds up the report's units by limit.
func (p *Pending) Settled() ([]SettledUnits, error) {
	table, rows, err := p.decode()
	if err != nil {
		return nil, err
	}
	sums := settled{}
	sums.add(p.ID.Epoch, table, rows)
	return sums.sorted(), nil
}

// settled adds up reports by epoch and limit.
type settled map[AccountID]int64

func (s settled) add(e Epoch, table []string, rows []codedRow) {
	for i := 0; i < len(rows); {
		limit, units := rows[i].limit, int64(0)
		for ; i < len(rows) && rows[i].limit == limit; i++ {
			units += rows[i].admitted
		}
		if units > 0 {
			s[AccountID{e, table[limit]}] += units
		}
	}
}

func (s settled) sorted() []SettledUnits {
	all := make([]SettledUnits, 0, len(s))
	for id, units := range s {
		all = append(all, SettledUnits{id, units})
	}
	slices.SortFunc(all, func(a, b SettledUnits) int { return a.ID.Compare(b.ID) })
	return all
}
