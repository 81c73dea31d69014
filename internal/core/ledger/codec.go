package ledger

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of a payload. An encoder that has more makes several reports; Split cuts.
const (
	MaxRows    = 65_536  // rows of one report
	MaxPayload = 4 << 20 // bytes of one report's rows
	// MaxReportUnits bounds each count's sum over one report, so that merging
	// thousands of reports cannot overflow: 9 years at a million a second.
	MaxReportUnits = 1 << 48
	// maxSlot is the end of the year 9999: beyond it calendars have no names.
	maxSlot = 253_402_300_799
)

// The first byte of a payload. Rows without plans keep the encoding from before plans, so old digests hold.
const (
	codecVersion = 1
	codecPlans   = 2 // some row has a plan
)

// ErrEncoding means that bytes are not rows in the canonical encoding.
var ErrEncoding = errors.New("ledger: not the canonical encoding of rows")

// CompareKey orders rows by slot, tenant, limit, meter, version, plan and attributes,
// bytewise: the order of payloads and of a block's entries.
func (r *Row) CompareKey(o *Row) int {
	if c := cmp.Compare(r.Slot, o.Slot); c != 0 {
		return c
	}
	if c := strings.Compare(r.Tenant, o.Tenant); c != 0 {
		return c // of most rows that are sorted: the rest is not looked at
	}
	return cmp.Or(
		strings.Compare(r.Limit, o.Limit),
		strings.Compare(r.Meter, o.Meter),
		cmp.Compare(r.Version, o.Version),
		strings.Compare(r.Plan, o.Plan),
		strings.Compare(r.Attributes, o.Attributes),
	)
}

// Key returns the row with its counts at zero.
func (r Row) Key() Row {
	r.Admitted, r.Overage, r.Denied = 0, 0, 0
	return r
}

// EncodeRows returns the canonical encoding: rows of equal keys are summed, rows
// are sorted, each string is written once. The same set of rows has one encoding,
// so that its digest identifies it. No rows encode as nil. The bounds are the
// decoder's to enforce; a caller with more than MaxRows uses Split first.
//
// The encoding is, in this order:
//
//	version byte
//	number of strings; strings (length, bytes), strictly ascending
//	number of rows; rows, strictly ascending
//
//	row: slot (less the row's before); indexes of tenant, limit and meter; version;
//	indexes of attributes and plan; admitted, overage, denied
//
// If no row has a plan, no plan index is written, and the version byte says so. All numbers are unsigned
// varints of minimal length.
func EncodeRows(rows []Row) []byte {
	if len(rows) == 0 {
		return nil
	}
	rows = MergeRows(rows)
	version, columns := byte(codecVersion), len(texts{})
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Plan != "" }) {
		version = codecPlans
	} else {
		columns-- // the last is the plan
	}
	// Rows are in order, so most strings equal the row's before, and are looked at once.
	found := make([]use, 0, 2*len(rows)+columns) // of most rows the tenant and the attributes are their own
	size := 0
	for column := range columns {
		last := ""
		for i := range rows {
			if s := rows[i].texts()[column]; i == 0 || s != last {
				found = append(found, use{s, uint32(i*columns + column)})
				last, size = s, size+len(s)+2
			}
		}
	}
	slices.SortFunc(found, func(a, b use) int { return strings.Compare(a.name, b.name) })
	strs := 0
	places := make([]uint32, len(rows)*columns) // in the table, from 1; 0 for the place of the row before
	for i := range found {
		if i == 0 || found[i].name != found[i-1].name {
			found[strs].name = found[i].name // the first of each are the table
			strs++
		}
		places[found[i].at] = uint32(strs)
	}
	b := make([]byte, 0, size+len(rows)*16+16)
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(strs))
	for _, u := range found[:strs] {
		b = binary.AppendUvarint(b, uint64(len(u.name)))
		b = append(b, u.name...)
	}
	b = binary.AppendUvarint(b, uint64(len(rows)))
	var slot int64
	var at [len(texts{})]uint32
	for i := range rows {
		r := &rows[i]
		for column := range columns {
			if place := places[i*columns+column]; place > 0 {
				at[column] = place - 1
			}
		}
		b = binary.AppendUvarint(b, uint64(r.Slot-slot))
		b = binary.AppendUvarint(b, uint64(at[0]))
		b = binary.AppendUvarint(b, uint64(at[1]))
		b = binary.AppendUvarint(b, uint64(at[2]))
		b = binary.AppendUvarint(b, uint64(r.Version))
		for _, place := range at[3:columns] {
			b = binary.AppendUvarint(b, uint64(place))
		}
		b = binary.AppendUvarint(b, uint64(r.Admitted))
		b = binary.AppendUvarint(b, uint64(r.Overage))
		b = binary.AppendUvarint(b, uint64(r.Denied))
		slot = r.Slot
	}
	return b
}

// texts are a row's names, in the order that a payload has them.
type texts [5]string

func (r *Row) texts() texts { return texts{r.Tenant, r.Limit, r.Meter, r.Attributes, r.Plan} }

// use is where a name is used: a row and a column of it.
type use struct {
	name string
	at   uint32
}

// MergeRows returns the rows in order, equal keys summed; the argument stays as it is.
func MergeRows(rows []Row) []Row {
	strict := func(i int) bool { return rows[i-1].CompareKey(&rows[i]) < 0 }
	ordered := true
	for i := 1; i < len(rows) && ordered; i++ {
		ordered = strict(i)
	}
	if ordered {
		return rows
	}
	order := make([]*Row, len(rows)) // a row is large to be moved at each step of a sort
	for i := range rows {
		order[i] = &rows[i]
	}
	slices.SortFunc(order, (*Row).CompareKey)
	merged := make([]Row, 0, len(rows))
	for i, r := range order {
		if i == 0 || order[i-1].CompareKey(r) != 0 {
			merged = append(merged, *r)
			continue
		}
		last := &merged[len(merged)-1]
		last.Admitted += r.Admitted
		last.Overage += r.Overage
		last.Denied += r.Denied
	}
	return merged
}

// Split cuts rows into parts that each encode within the bounds of one report. A row with more units than a
// report may hold comes in several. A single row whose names exceed the bounds is a part of its own, for the
// receiver to refuse.
func Split(rows []Row) [][]Row {
	const rowMax = 10 * binary.MaxVarintLen64
	rows = splitUnits(rows)
	var parts [][]Row
	start, size := 0, 0
	var admitted, denied int64
	for i := range rows {
		r := &rows[i]
		n := rowMax + len(r.Tenant) + len(r.Limit) + len(r.Meter) + len(r.Attributes) + len(r.Plan) + 5*3
		full := i-start == MaxRows || size+n > MaxPayload-64 || admitted+r.Admitted > MaxReportUnits || denied+r.Denied > MaxReportUnits
		if i > start && full {
			parts = append(parts, rows[start:i])
			start, size, admitted, denied = i, 0, 0, 0
		}
		size, admitted, denied = size+n, admitted+r.Admitted, denied+r.Denied
	}
	if start < len(rows) {
		parts = append(parts, rows[start:])
	}
	return parts
}

// splitUnits returns the rows, those above MaxReportUnits in pieces. The argument
// stays as it is.
func splitUnits(rows []Row) []Row {
	above := func(r Row) bool { return max(r.Admitted, r.Denied) > MaxReportUnits }
	if !slices.ContainsFunc(rows, above) {
		return rows
	}
	var cut []Row
	for _, r := range rows {
		for above(r) {
			piece := r
			piece.Admitted, piece.Denied = min(r.Admitted, MaxReportUnits), min(r.Denied, MaxReportUnits)
			piece.Overage = min(r.Overage, piece.Admitted)
			r.Admitted, r.Overage, r.Denied = r.Admitted-piece.Admitted, r.Overage-piece.Overage, r.Denied-piece.Denied
			cut = append(cut, piece)
		}
		cut = append(cut, r)
	}
	return cut
}

// DecodeRows reads a payload strictly: within the bounds, counts at least zero,
// overage at most admitted, no duplicate keys, nothing after the end. What it
// accepts is exactly what EncodeRows makes. The rows' strings share one copy of
// the payload. Errors wrap ErrEncoding.
func DecodeRows(payload []byte) ([]Row, error) {
	table, coded, err := decodeCoded(payload)
	if err != nil || len(coded) == 0 {
		return nil, err
	}
	rows := make([]Row, len(coded))
	for i := range coded {
		rows[i] = coded[i].row(table)
	}
	return rows, nil
}

// codedRow is a row whose names are places in its payload's table of strings.
type codedRow struct {
	slot, version                          int64
	tenant, limit, meter, plan, attributes uint32
	admitted, overage, denied              int64
}

func (r *codedRow) row(table []string) Row {
	return Row{
		Slot: r.slot, Tenant: table[r.tenant], Limit: table[r.limit], Meter: table[r.meter],
		Version: r.version, Plan: table[r.plan], Attributes: table[r.attributes], Admitted: r.admitted, Overage: r.overage, Denied: r.denied,
	}
}

// precedes compares keys: a table is sorted, so that places have the strings' order.
func (r *codedRow) precedes(o *codedRow) bool {
	switch {
	case r.slot != o.slot:
		return r.slot < o.slot
	case r.tenant != o.tenant:
		return r.tenant < o.tenant
	case r.limit != o.limit:
		return r.limit < o.limit
	case r.meter != o.meter:
		return r.meter < o.meter
	case r.version != o.version:
		return r.version < o.version
	case r.plan != o.plan:
		return r.plan < o.plan
	}
	return r.attributes < o.attributes
}

// decodeCoded is DecodeRows without the names in each row.
func decodeCoded(payload []byte) ([]string, []codedRow, error) {
	if len(payload) == 0 {
		return nil, nil, nil
	}
	if len(payload) > MaxPayload {
		return nil, nil, fmt.Errorf("%w: %d bytes, at most %d", ErrEncoding, len(payload), MaxPayload)
	}
	plans, least := payload[0] == codecPlans, 9
	if plans {
		least++
	} else if payload[0] != codecVersion {
		return nil, nil, fmt.Errorf("%w: version %d, want %d or %d", ErrEncoding, payload[0], codecVersion, codecPlans)
	}
	d := decoder{rest: string(payload[1:])}
	table := d.table()
	n := d.count(MaxRows, least)
	if d.fault == "" && n == 0 {
		d.fail("no rows; a heartbeat has no payload")
	}
	if d.fault != "" {
		return nil, nil, fmt.Errorf("%w: %s", ErrEncoding, d.fault)
	}
	rows := make([]codedRow, n)
	used := make([]bool, len(table))
	none, planned := uint32(len(table)), !plans // the name of no plan, behind those that are written
	var slot, admitted, denied int64
	for i := range rows {
		delta := d.uvarint()
		if delta > maxSlot || uint64(slot)+delta > maxSlot {
			d.fail("slot after the year 9999")
			break
		}
		slot += int64(delta)
		r := &rows[i]
		r.slot = slot
		r.tenant = d.index(used)
		r.limit = d.index(used)
		r.meter = d.index(used)
		version := d.uvarint()
		if version > 1<<62 {
			d.fail("policy version out of range")
		}
		r.version = int64(version)
		r.attributes = d.index(used)
		if r.plan = none; plans {
			r.plan = d.index(used)
			planned = planned || d.fault == "" && table[r.plan] != ""
		}
		r.admitted, r.overage, r.denied = d.units(), d.units(), d.units()
		admitted += r.admitted
		denied += r.denied
		switch {
		case r.overage > r.admitted:
			d.fail("overage above admitted")
		case admitted > MaxReportUnits || denied > MaxReportUnits:
			d.fail("more units than a report may hold")
		case i > 0 && !rows[i-1].precedes(r):
			d.fail("rows out of order, or twice")
		}
		if d.fault != "" {
			break
		}
	}
	switch {
	case d.fault != "":
	case d.rest != "":
		d.fail("bytes after the last row")
	case slices.Contains(used, false):
		d.fail("a string that no row uses")
	case !planned:
		d.fail("no row has a plan: it is another encoding of the same rows")
	}
	if d.fault != "" {
		return nil, nil, fmt.Errorf("%w: %s", ErrEncoding, d.fault)
	}
	if !plans {
		table = append(table, "")
	}
	return table, rows, nil
}

// decoder reads from the front of rest until the first fault, and zeros after it.
type decoder struct {
	rest  string
	fault string
}

func (d *decoder) fail(why string) {
	if d.fault == "" {
		d.fault, d.rest = why, ""
	}
}

func (d *decoder) uvarint() uint64 {
	if len(d.rest) > 0 && d.rest[0] < 0x80 { // most
		v := d.rest[0]
		d.rest = d.rest[1:]
		return uint64(v)
	}
	var v uint64
	for i := 0; i < len(d.rest) && i < binary.MaxVarintLen64; i++ {
		c := d.rest[i]
		if i == binary.MaxVarintLen64-1 && c > 1 {
			break // above 64 bits
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				break // not minimal: a second encoding of the same number
			}
			d.rest = d.rest[i+1:]
			return v
		}
	}
	d.fail("a number is cut short or not minimal")
	return 0
}

// count reads how many items follow. It is at most max, and no more than fit if each takes at least size bytes:
// a false count allocates nothing.
func (d *decoder) count(max, size int) int {
	n := d.uvarint()
	if n > uint64(max) || n > uint64(len(d.rest)/size) {
		d.fail("more items than fit")
		return 0
	}
	return int(n)
}

func (d *decoder) table() []string {
	table := make([]string, d.count(len(texts{})*MaxRows, 1))
	for i := range table {
		n := d.uvarint()
		if n > uint64(len(d.rest)) {
			d.fail("a string is cut short")
		}
		if d.fault != "" {
			return nil
		}
		table[i], d.rest = d.rest[:n], d.rest[n:]
		if i > 0 && table[i-1] >= table[i] {
			d.fail("strings out of order, or twice")
		}
	}
	return table
}

func (d *decoder) index(used []bool) uint32 {
	i := d.uvarint()
	if i >= uint64(len(used)) {
		d.fail("a string that is not there")
		return 0
	}
	used[i] = true
	return uint32(i)
}

func (d *decoder) units() int64 {
	n := d.uvarint()
	if n > MaxReportUnits {
		d.fail("more units than a report may hold")
		return 0
	}
	return int64(n)
}
