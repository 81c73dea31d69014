package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// errEnough ends a breakdown that has as many rows as were asked for.
var errEnough = errors.New("sqlbooks: enough rows")

// Breakdown is ledger.Books'. Every chunk is a snapshot of its own: a height says the same in each. So none is
// held while the caller takes its time to read the answer. After each chunk it asks whether the chunk's entries
// were there. Entries that are not archived then were not archived while they were read, so retention need not
// wait for readers. In Postgres a snapshot would not do: a dropped partition is gone from earlier snapshots as
// well.
func (b *Books) Breakdown(ctx context.Context, q ledger.BreakdownQuery, emit func(*ledger.BreakdownRow) error, progress func(ledger.Progress)) (out ledger.BreakdownInfo, err error) {
	if err := q.Check(); err != nil {
		return out, err
	}
	_, now, err := b.room(ctx)
	if err != nil {
		return out, err
	}
	if progress == nil {
		progress = func(ledger.Progress) {}
	}
	err = b.read(ctx, func(tx *sql.Tx) error {
		newest, err := sealedBlock(ctx, tx, 0)
		if err != nil {
			return err
		}
		if out.Block, err = sealedBlock(ctx, tx, q.Height); err != nil {
			return err
		}
		var first, last sql.NullInt64
		if err := tx.QueryRowContext(ctx, "SELECT (SELECT min(hour) FROM rollups), (SELECT max(hour) FROM rollups)").Scan(&first, &last); err != nil {
			return err
		}
		if first.Valid {
			out.From, out.To = q.Range(first.Int64, last.Int64+3600)
		}
		if newest.Height != out.Block.Height {
			return nil
		}
		var tenants []string
		switch {
		case q.Subtree:
			if tenants, err = b.d.subtree(ctx, tx, q.Tenant); err != nil {
				return err
			}
		case q.Tenant != "":
			tenants = []string{q.Tenant}
		}
		from, to := between(q.From, q.To) // out's ends with what there is
		c, err := b.complete(ctx, tx, tenants, now, from)
		if err != nil {
			return err
		}
		out.Complete, out.Lagging = c.Through, c.Lagging
		out.Lost, err = askTx(tx).losses(ctx, b.engine, c.Lost, from, to, ledger.MaxUsageLosses, now)
		return err
	})
	if err != nil {
		return out, err
	}
	if out.Slot = b.options.Slot; out.Slot <= 0 {
		out.Slot = ledger.DefaultSlot
	}
	chunks, err := q.Chunks(out.From, out.To)
	if err != nil {
		return out, err
	}
	if err := b.read(ctx, func(tx *sql.Tx) error { return b.needsArchive(ctx, tx, &q, &out, chunks) }); err != nil {
		return out, err
	}
	ahead := b.ahead(ctx, &q, out.Block.Height, chunks)
	defer ahead.stop()
	left := q.Rows
	for i, c := range chunks {
		enough, err := ahead.chunk(i, func(row *ledger.BreakdownRow) error {
			if err := emit(row); err != nil {
				return emitted{err}
			}
			if left--; left == 0 {
				return errEnough
			}
			return nil
		})
		var e emitted
		if errors.As(err, &e) {
			return out, e.error
		}
		if err == nil {
			of := ledger.BreakdownInfo{Block: out.Block, From: c.From, To: c.To}
			err = b.read(ctx, func(tx *sql.Tx) error { return b.needsArchive(ctx, tx, &q, &of, chunks[i:i+1]) })
		}
		if err != nil || enough {
			return out, err
		}
		progress(ledger.Progress{Stage: "usage", Done: int64(i) + 1, Total: int64(len(chunks))})
	}
	return out, nil
}

// needsArchive refuses what cannot be told without entries that are archived: it would
// be told without them, as if they had never been.
func (b *Books) needsArchive(ctx context.Context, tx *sql.Tx, q *ledger.BreakdownQuery, of *ledger.BreakdownInfo, chunks []ledger.Chunk) error {
	before, err := b.archivedBefore(ctx, tx)
	if err != nil || of.From >= before {
		return err
	}
	bad := func(what string) error {
		return fmt.Errorf("%w: entries from before %s are archived, and %s needs them; begin there, or leave that out",
			ledger.ErrQuery, time.Unix(before, 0).UTC().Format(time.DateOnly), what)
	}
	if q.FromEntries() {
		return bad("usage by slot, with its peak or since a height")
	}
	for i := range chunks {
		for _, edge := range chunks[i].Edges() {
			if edge%3600 != 0 && edge < before {
				return bad("a range, or a day of a zone, that begins or ends within an hour")
			}
		}
	}
	var high int64
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(high), 0) FROM archives").Scan(&high); err != nil {
		return err
	}
	if of.Block.Height < high {
		return bad(fmt.Sprintf("a height below %d", high))
	}
	return nil
}

// emitted is an error of the caller that takes the rows, not of the engine.
type emitted struct{ error }

// below is a tenant, whose id is $1, and all below it.
func (d *dialect) below() string {
	return `below(id) AS (
		SELECT CAST($1 AS text) ` + d.bytewise + `
		UNION
		SELECT t.id FROM tenants t JOIN below u ON t.parent = u.id AND t.parent <> '')`
}

// watched bounds the tenants whose agents are told apart for completeness: of more,
// that of all tenants holds too, though it may be earlier.
const watched = 1_000

// subtree is a tenant and all below it; nil for more than can be watched.
func (d *dialect) subtree(ctx context.Context, tx *sql.Tx, tenant string) (all []string, err error) {
	rows, err := tx.QueryContext(ctx, "WITH RECURSIVE "+d.below()+" SELECT id FROM below LIMIT "+strconv.Itoa(watched+1), tenant)
	err = each(rows, err, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		all = append(all, id)
		return err
	})
	if len(all) > watched {
		return nil, err
	}
	return all, err
}

// statement is one query under construction. Numbers stand in its text, so that each is
// planned for what it asks; text is in its parameters.
type statement struct {
	d     *dialect
	q     *ledger.BreakdownQuery
	chunk ledger.Chunk
	text  string
	args  []any
	names []string // expressions of the dimensions, over keys k and parts b
}

func (s *statement) param(v string) string {
	s.args = append(s.args, v)
	return "CAST($" + strconv.Itoa(len(s.args)) + " AS text)"
}

// timed reports whether times within the chunk are told apart.
func (s *statement) timed() bool {
	return s.q.Every == ledger.EverySlot || s.q.Every == ledger.EveryHour || len(s.chunk.Bins) > 1
}

// start is the time that what is counted at a time is told apart by.
func (s *statement) start(at string) string {
	switch {
	case s.q.Every == ledger.EverySlot:
		return at
	case s.q.Every == ledger.EveryHour:
		return at + " - " + at + " % 3600"
	}
	return binned(s.chunk.Bins, at)
}

// binned is the start of the bin that a time is in, found by halves.
func binned(bins []ledger.Bin, at string) string {
	if len(bins) == 0 {
		return "0"
	}
	if len(bins) == 1 {
		return strconv.FormatInt(bins[0].Start, 10)
	}
	half := len(bins) / 2
	return fmt.Sprintf("CASE WHEN %s < %d THEN %s ELSE %s END", at, bins[half].From, binned(bins[:half], at), binned(bins[half:], at))
}

// cut are the hours that an edge within the chunk divides.
func cut(c *ledger.Chunk) (hours []int64) {
	edges := c.Edges()
	for _, edge := range edges[1 : len(edges)-1] {
		if mod(edge) != 0 {
			hours = append(hours, edge-mod(edge))
		}
	}
	return hours
}

// scanner reads rows of the statement, into what it made once.
func (s *statement) scanner() func(rows *sql.Rows) (*ledger.BreakdownRow, error) {
	var start, peak int64
	var high, low ledger.Sum
	names := make([]string, len(s.names))
	to := []any{&start}
	for i := range names {
		to = append(to, &names[i])
	}
	to = append(to, &high.Admitted, &low.Admitted, &high.Overage, &low.Overage, &high.Denied, &low.Denied, &peak)
	return func(rows *sql.Rows) (*ledger.BreakdownRow, error) {
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		return &ledger.BreakdownRow{Start: start, Names: slices.Clone(names), Sum: ledger.SumOf(high, low), Peak: peak}, nil
	}
}

// BreakdownSQL is the query of a chunk and its parameters, for tests of how it is planned;
// higher as breakdown's.
func BreakdownSQL(engine Engine, q *ledger.BreakdownQuery, c ledger.Chunk, height int64, higher bool) (text string, args []any) {
	s := dialects[engine].breakdown(q, c, height, higher)
	return s.text, s.args
}

// breakdown is the query of a chunk. It adds up by key first, which is one row of the
// many of a month, and then by names. higher says that there are blocks above the height.
func (d *dialect) breakdown(q *ledger.BreakdownQuery, c ledger.Chunk, height int64, higher bool) *statement {
	s := &statement{d: d, q: q, chunk: c}
	timed := s.timed() || q.Peak // parts have a start: that of the row, or of the slot
	for _, d := range q.By {
		s.names = append(s.names, s.name(d))
	}
	with := ""
	if q.Subtree { // first, for its parameter is the first
		s.param(q.Tenant)
		with = d.below() + ",\n\t"
	}
	keys := s.keys()
	var parts []string
	// part adds rows of a table t, whose times are at; less takes them away.
	part := func(from, at, t, where string, less bool) {
		sign := ""
		if less {
			sign = "-"
		}
		columns := fmt.Sprintf("SELECT %s.key AS key, %sadmitted AS a, %soverage AS o, %sdenied AS d", t, sign, sign, sign)
		columns = strings.NewReplacer("-admitted", "-"+t+".admitted", "-overage", "-"+t+".overage", "-denied", "-"+t+".denied").Replace(columns)
		if q.Peak { // by slot first
			columns += ", " + at + " AS start"
		} else if timed {
			columns += ", " + s.start(at) + " AS start"
		}
		parts = append(parts, columns+" FROM "+from+" WHERE "+where+keys)
	}
	joined := func(from, t string) string {
		if keys != "" {
			from += " JOIN keys k ON k.key = " + t + ".key"
		}
		return from
	}
	slots := func(from, to int64, since int64) string {
		return fmt.Sprintf("e.slot >= %d AND e.slot < %d AND e.height <= %d AND e.height > %d", from, to, height, since) + d.during(from, to)
	}
	from, to := c.From+mod(-c.From), c.To-mod(c.To) // whole hours
	divided := numbers(cut(&c))
	if q.FromEntries() || from >= to {
		part(joined("entries e", "e"), "e.slot", "e", slots(c.From, c.To, q.Since), false)
	} else {
		uncut := func(at string) (which string) {
			if divided != "" {
				which = " AND " + at + " NOT IN (" + divided + ")"
			}
			return which
		}
		hours := fmt.Sprintf("r.hour >= %d AND r.hour < %d", from, to)
		part(joined("rollups r", "r"), "r.hour", "r", hours+uncut("r.hour"), false)
		if higher { // what roll-ups have of those blocks
			part(joined("entries e", "e"), "e.slot", "e", fmt.Sprintf("e.height > %d AND e.slot >= %d AND e.slot < %d", height, from, to)+d.during(from, to)+uncut("e.slot - e.slot % 3600"), true)
		}
		if c.From < from {
			part(joined("entries e", "e"), "e.slot", "e", slots(c.From, from, 0), false)
		}
		if to < c.To {
			part(joined("entries e", "e"), "e.slot", "e", slots(to, c.To, 0), false)
		}
		within := "e.slot >= x.hour AND e.slot < x.hour + 3600"
		at := fmt.Sprintf("x.hour >= %d AND x.hour < %d AND e.height <= %d", from, to, height) + d.during(from, to)
		if divided != "" { // hours that are of two bins
			with += "divided(hour) AS (VALUES (" + strings.ReplaceAll(divided, ",", "), (") + ")),\n\t"
			tables := "divided x JOIN entries e ON " + within
			if keys != "" {
				tables = "divided x CROSS JOIN keys k JOIN entries e ON e.key = k.key AND " + within
			}
			part(tables, "e.slot", "e", at, false)
		}
	}
	byKey, group := "key", "key"
	if timed {
		byKey, group = byKey+", start", group+", start"
	}
	with += "parts AS (" + strings.Join(parts, "\n\tUNION ALL ") + "),\n\tby_key AS (SELECT " + byKey + ", " + s.d.sums + " FROM parts GROUP BY " + group + ")"

	// All rows of limits; otherwise what the meters counted, and all denials.
	metered := ""
	if !q.Has(ledger.DimLimit) && q.Limit == "" {
		metered = "k.meter <> ''"
	}
	// The keys are chosen once more, or all of them would be read to name those that were.
	which := "NOT (k.meter = '' AND k.attributes = '" + ledger.WouldDeny + "')" + keys
	if len(q.Except) > 0 {
		which += " AND k.version NOT IN (" + numbers(q.Except) + ")"
	}
	start := "0"
	switch {
	case q.Peak:
		start = s.start("b.start")
	case timed:
		start = "b.start"
	case len(c.Bins) == 1:
		start = s.start("")
	}
	groups := s.names
	if s.timed() {
		groups = append([]string{start}, groups...)
	}
	selected, columns := start+" AS t", []string{"t"}
	for i, n := range s.names {
		selected += fmt.Sprintf(", %s AS n%d", n, i)
		columns = append(columns, "n"+strconv.Itoa(i))
	}
	if a := q.After; a != nil {
		which += " AND " + s.after(a, groups)
	}
	if q.Peak {
		// By slot first, whose greatest is the peak.
		with += ",\n\tby_slot AS (SELECT " + selected + ", " + s.d.resums(metered) + " FROM by_key b JOIN keys k ON k.key = b.key WHERE " + which +
			" GROUP BY " + strings.Join(append([]string{"b.start"}, groups...), ", ") + ")"
		s.text = "WITH RECURSIVE " + with + "\nSELECT " + strings.Join(columns, ", ") + ", " + s.d.totals("") + ", " + s.d.peak + " AS peak FROM by_slot b GROUP BY " +
			strings.Join(columns, ", ") + " HAVING " + s.d.any("")
	} else {
		s.text = "WITH RECURSIVE " + with + "\nSELECT " + selected + ", " + s.d.totals(metered) + ", CAST(0 AS bigint) AS peak FROM by_key b JOIN keys k ON k.key = b.key WHERE " + which
		if len(groups) > 0 {
			s.text += " GROUP BY " + strings.Join(groups, ", ")
		}
		s.text += " HAVING " + s.d.any(metered)
	}
	if q.Top > 0 {
		s.text = "SELECT * FROM (" + s.text + ") AS all_ ORDER BY " + s.d.most(q.TopBy) + " DESC, " + strings.Join(columns, ", ") + " LIMIT " + strconv.Itoa(q.Top)
	} else {
		s.text += " ORDER BY " + ordinals(len(columns))
		if q.Rows > 0 {
			s.text += " LIMIT " + strconv.Itoa(q.Rows)
		}
	}
	return s
}

// ordinals are columns by their places: a name may also be a table's.
func ordinals(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(i + 1)
	}
	return strings.Join(all, ", ")
}

// name is the expression of a dimension. Text is compared by its bytes.
func (s *statement) name(dimension string) string {
	switch dimension {
	case ledger.DimTenant:
		return "k.tenant"
	case ledger.DimPlan:
		return "k.plan"
	case ledger.DimLimit:
		return "k.limit_name"
	case ledger.DimMeter:
		return "k.meter"
	case ledger.DimAttributes:
		return "k.attributes"
	}
	return s.d.attribute(strings.TrimPrefix(dimension, ledger.DimAttribute))
}

// keys are the conditions on keys k that leave out most of them.
func (s *statement) keys() (which string) {
	q := s.q
	switch {
	case q.Subtree:
		which += " AND k.tenant IN (SELECT id FROM below)"
	case q.Tenant != "":
		which += " AND k.tenant = " + s.param(q.Tenant)
	}
	if q.Plan != "" {
		which += " AND k.plan = " + s.param(q.Plan)
	}
	if q.Limit != "" {
		which += " AND k.limit_name = " + s.param(q.Limit)
	}
	if q.Meter != "" {
		which += " AND k.meter = " + s.param(q.Meter)
	}
	if q.Attribute != "" {
		which += " AND " + s.d.find("'"+ledger.AttributeSep+"' || k.attributes || '"+ledger.AttributeSep+"'",
			"'"+ledger.AttributeSep+"' || "+s.param(q.Attribute)+" || '"+ledger.AttributeSep+"'") + " > 0"
	}
	return which
}

// after holds for rows behind the mark.
func (s *statement) after(a *ledger.BreakdownMark, groups []string) string {
	if len(s.chunk.Bins) == 1 && s.chunk.Bins[0].Start > a.Start {
		return "1 = 1" // a later chunk
	}
	var marks []string
	if s.timed() {
		marks = append(marks, strconv.FormatInt(a.Start, 10))
	}
	for _, n := range a.Names {
		marks = append(marks, s.param(n))
	}
	if len(marks) == 0 {
		return "1 = 0" // the only row was the one before
	}
	return "(" + strings.Join(groups, ", ") + ") > (" + strings.Join(marks, ", ") + ")"
}

// mod is the remainder to the whole hour before.
func mod(t int64) int64 { return ((t % 3600) + 3600) % 3600 }
