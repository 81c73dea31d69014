package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Every is the length of the times that a breakdown tells apart.
type Every uint8

const (
	EveryRange Every = iota // the range as a whole
	EverySlot
	EveryHour  // UTC hours
	EveryDay   // days of BreakdownQuery.Zone
	EveryMonth // months of BreakdownQuery.Zone
)

// Dimensions that a breakdown tells usage apart by. DimAttribute is followed by an
// attribute's name.
const (
	DimTenant     = "tenant"
	DimPlan       = "plan" // that the units were admitted under; empty where that is not known
	DimLimit      = "limit"
	DimMeter      = "meter"
	DimAttributes = "attributes" // all of the limit's, joined by AttributeSep
	DimAttribute  = "attribute:"
)

// Bounds of a breakdown.
const (
	MaxDimensions = 8
	MaxTop        = 1_000 // rows that are chosen by their counts
)

// BreakdownQuery asks what the sealed entries up to a block add up to. They never change. So all pages of an
// answer agree, and so does the same question at the same height, whatever is settled meanwhile. Later usage is
// in higher blocks; Since asks for those.
//
// Without DimLimit, Admitted and Overage are what the meters counted, so a request under three limits counts
// once. Denied is over all limits. What a limit on trial would have denied is in no breakdown, nor are rows
// that come to nothing.
type BreakdownQuery struct {
	Height int64 // 0 for the newest block
	Since  int64 // of blocks above it alone: what came since
	// Slots in [From, To); zero for the beginning and the end of all usage.
	From, To time.Time
	Every    Every
	Zone     *time.Location // of days and months; nil for UTC
	By       []string       // dimensions, in their order

	Tenant    string // empty for all
	Subtree   bool   // of Tenant and all below it, as they are now
	Plan      string // empty for all, as are the next three
	Limit     string
	Meter     string
	Attribute string  // name=value
	Except    []int64 // versions left out: those that were only tried beside another

	// Peak asks for the busiest slot of each row as well. It is read from entries, not from roll-ups.
	Peak bool
	// Top asks for that many rows with the most of TopBy (admitted, overage or denied), instead of all in their
	// order. It needs EveryRange; 0 for all.
	Top   int
	TopBy string

	Rows  int            // at most; 0 for all there are
	After *BreakdownMark // rows after this one; nil for the first
}

// BreakdownRow is one sum.
type BreakdownRow struct {
	Start int64    // of the slot, hour, day or month, Unix seconds; 0 of the range
	Names []string // as BreakdownQuery.By has them
	Sum
	Peak int64 // Admitted of the busiest slot, where asked for
}

// BreakdownMark is a row's place in the order of a breakdown.
type BreakdownMark struct {
	Height int64    `json:"h"` // of the pages before
	Start  int64    `json:"s"`
	Names  []string `json:"n"`
}

// MaxMark bounds the bytes of the mark of a real row. Its names are a row's, and parts of its attributes, no
// two of which share a byte. In JSON a byte of either takes at most two, and AttributeSep takes six. Only the
// whole of the attributes holds AttributeSep. The rest of a mark is numbers and quotes.
const MaxMark = (markText*8 + 5) / 6

const (
	markNames = MaxTenant + 3*MaxName + 2*MaxAttributes
	markText  = 2*markNames + 4*MaxAttributes + 128
)

// String is how a mark travels.
func (m *BreakdownMark) String() string {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // it would make six bytes of one
	if err := enc.Encode(m); err != nil {
		panic(err) // numbers and strings
	}
	return base64.RawURLEncoding.EncodeToString(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

// ParseBreakdownMark reads what String wrote; errors wrap ErrQuery.
func ParseBreakdownMark(s string) (*BreakdownMark, error) {
	m := new(BreakdownMark)
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil || m.Height < 0 || len(m.Names) > MaxDimensions {
		return nil, fmt.Errorf("%w: page %q is none of a breakdown's", ErrQuery, clip(s))
	}
	return m, nil
}

// BreakdownInfo says which block and range a breakdown covers, and how far it can be trusted.
type BreakdownInfo struct {
	Block    KeptBlockInfo // zero where nothing was ever folded
	From, To int64         // the range, within all usage that there is, Unix seconds
	Slot     time.Duration
	// Complete says through when all usage asked for is in blocks up to this one, but for that of Lost. Lagging
	// says which agents hold it back. Only an answer of the newest block has them.
	Complete time.Time
	Lagging  []string
	Lost     Losses
}

// Chunk is a part of a breakdown that is read at a time: rows come in the order of chunks.
type Chunk struct {
	From, To int64
	Bins     []Bin // the days or months that it is of; none of slots, hours and the range
}

// Bin is a day or month of a chunk. It has the slots from From to the next one's.
type Bin struct {
	Start int64 // BreakdownRow.Start of its rows
	From  int64
}

// Edges are the times that divide the chunk, with its ends.
func (c *Chunk) Edges() []int64 {
	edges := []int64{c.From}
	for i := 1; i < len(c.Bins); i++ {
		edges = append(edges, c.Bins[i].From)
	}
	return append(edges, c.To)
}

// Check reports what is wrong with a query; errors wrap ErrQuery.
func (q *BreakdownQuery) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrQuery}, args...)...)
	}
	switch {
	case q.Every > EveryMonth:
		return bad("every %d", q.Every)
	case len(q.By) > MaxDimensions:
		return bad("by %d dimensions; at most %d are allowed", len(q.By), MaxDimensions)
	case q.Since > 0 && q.Height > 0 && q.Since > q.Height:
		return bad("blocks above %d up to %d: there are none", q.Since, q.Height)
	case q.Subtree && q.Tenant == "":
		return bad("a subtree is some tenant's")
	case q.Top > 0 && (q.Every != EveryRange || q.After != nil):
		return bad("the rows with the most are of the range as a whole, and have no further pages")
	case q.Top > MaxTop:
		return bad("%d rows with the most; at most %d are allowed", q.Top, MaxTop)
	case q.Top > 0 && !slices.Contains([]string{"admitted", "overage", "denied"}, q.TopBy):
		return bad("the most of %q; it must be admitted, overage or denied", clip(q.TopBy))
	case q.After != nil && len(q.After.Names) != len(q.By):
		return bad("the page is of another breakdown")
	case q.Attribute != "" && !strings.Contains(q.Attribute, "="):
		return bad("attribute %q; it must be name=value", clip(q.Attribute))
	}
	for i, d := range q.By {
		name, attribute := strings.CutPrefix(d, DimAttribute)
		if attribute && !attributeName(name) {
			return bad("by attribute %q, which is no attribute's name", clip(name))
		}
		if !attribute && !slices.Contains([]string{DimTenant, DimPlan, DimLimit, DimMeter, DimAttributes}, d) {
			return bad("by %q; it must be tenant, plan, limit, meter, attributes or attribute:NAME", clip(d))
		}
		if slices.Contains(q.By[:i], d) {
			return bad("by %s twice", d)
		}
	}
	return nil
}

// attributeName holds for names that a policy may give. They are written into queries, so nothing else may
// pass.
func attributeName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0) {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// FromEntries reports whether the answer needs entries throughout, and not roll-ups.
func (q *BreakdownQuery) FromEntries() bool { return q.Every == EverySlot || q.Peak || q.Since > 0 }

// Has reports whether usage is told apart by a dimension.
func (q *BreakdownQuery) Has(dimension string) bool { return slices.Contains(q.By, dimension) }

// Range is the part of [first, last) that the query asks for, Unix seconds.
func (q *BreakdownQuery) Range(first, last int64) (from, to int64) {
	from, to = first, last
	if !q.From.IsZero() {
		from = max(from, ceilSecond(q.From))
	}
	if !q.To.IsZero() {
		to = min(to, ceilSecond(q.To))
	}
	return from, max(from, to)
}

// chunkOfSlots is how many seconds of slots or hours are read at a time. periodsOfTenant and periodsOfSubtree
// are how many days, months or such chunks are read at a time, where few keys are asked for. A query for each
// of them would cost more than its reading.
const (
	chunkOfSlots     = 86_400
	periodsOfTenant  = 366
	periodsOfSubtree = 31
)

// atOnce is how many periods are read at a time.
func (q *BreakdownQuery) atOnce() int {
	switch {
	case q.Tenant == "":
		return 1
	case q.Subtree, q.Every == EverySlot, q.Every == EveryHour:
		return periodsOfSubtree
	}
	return periodsOfTenant
}

// Chunks divides a range into parts that are read at a time: days or months, or days of slots or hours. Of all
// tenants each has one. Those before the mark are left out. Errors wrap ErrQuery.
func (q *BreakdownQuery) Chunks(from, to int64) (all []Chunk, err error) {
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	periods := 0
	for at := from; at < to; {
		next := to
		var bins []Bin
		switch q.Every {
		case EverySlot, EveryHour:
			next = at - mod(at, chunkOfSlots) + chunkOfSlots
		case EveryDay, EveryMonth:
			// A period's start leaves out what the query cuts off. It does not matter where usage begins within
			// the period.
			start, end := calendarSpan(at, zone, q.Every == EveryMonth)
			if !q.From.IsZero() {
				start = max(start, ceilSecond(q.From))
			}
			bins = []Bin{{start, at}}
			next = max(end, at+1)
		case EveryRange:
		}
		next = min(next, to)
		if q.After == nil || q.Every == EveryRange || next > q.After.Start {
			if periods++; periods > maxPeriods {
				return nil, fmt.Errorf("%w: more than %d periods", ErrQuery, maxPeriods)
			}
			if (periods-1)%q.atOnce() == 0 {
				all = append(all, Chunk{From: at})
			}
			last := &all[len(all)-1]
			last.To, last.Bins = next, append(last.Bins, bins...)
		}
		at = next
	}
	return all, nil
}
