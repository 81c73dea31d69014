package sqlbooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Bounds of one page.
const maxPage = 1_000

// maxTold is how many refused rows an error names.
const maxTold = 10

// querier is what reads need of a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const correctionColumns = "number, key, kind, negative, payload, row_count, reverts, entry_height, entry_n, reason, actor, at_ms, digest"

func scanCorrection(c *ledger.Correction, scan func(...any) error, more ...any) error {
	var digest []byte
	err := scan(append([]any{&c.Number, &c.Key, &c.Kind, &c.Negative, &c.Payload, &c.Rows, &c.Reverts, &c.Entry.Height, &c.Entry.N,
		&c.Reason, &c.Actor, &c.At, &digest}, more...)...)
	hash(&c.Digest, digest)
	return err
}

func readCorrections(ctx context.Context, q querier, where string, args ...any) ([]ledger.Correction, error) {
	var all []ledger.Correction
	rows, err := q.QueryContext(ctx, "SELECT "+correctionColumns+" FROM corrections "+where, args...)
	err = each(rows, err, func(rows *sql.Rows) error {
		var c ledger.Correction
		err := scanCorrection(&c, rows.Scan)
		all = append(all, c)
		return err
	})
	return all, err
}

// list writes numbers for an SQL list: of parameters, each engine has its own kind.
func list(numbers []int64) string {
	if len(numbers) == 0 {
		return "NULL"
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}

// rules are what rows are judged by now.
func (b *Books) rules(ctx context.Context) (ledger.Rules, error) {
	window, now, err := b.room(ctx)
	rules := ledger.Rules{Now: now, Window: window, Slot: b.options.Slot, Accept: b.options.Accept}
	if rules.Slot <= 0 {
		rules.Slot = ledger.DefaultSlot
	}
	return rules, err
}

// Correct is ledger.Books'.
func (b *Books) Correct(ctx context.Context, actor string, c ledger.Correction) (ledger.Correction, error) {
	there, err := b.taken(ctx, b.db, &c)
	if own := c.CheckKey(); own != nil && (err == nil && there.Number == 0 || errors.Is(err, ledger.ErrTaken)) {
		return c, own // callers had such keys once: theirs are answered as ever
	}
	if err != nil || there.Number != 0 {
		return there, b.classify(err)
	}
	if err := b.check(ctx, &c); err != nil {
		return c, err
	}
	err = b.change(ctx, actor, func(ch *change) error {
		if there, err = b.taken(ctx, ch, &c); err != nil || there.Number != 0 {
			return err
		}
		if err := ch.insert(ctx, &c); err != nil {
			return err
		}
		there = c
		return ch.corrected(ctx, "ledger."+c.Kind, strconv.FormatInt(c.Number, 10), &c)
	})
	return there, err
}

// taken is the correction of that key, zero without one, ErrTaken where it says
// something else.
func (b *Books) taken(ctx context.Context, q querier, c *ledger.Correction) (ledger.Correction, error) {
	found, err := readCorrections(ctx, q, "WHERE key = $1", c.Key)
	if err != nil || len(found) == 0 {
		return ledger.Correction{}, err
	}
	if !found[0].Same(c) {
		return found[0], fmt.Errorf("%w: correction %d has the key %q, and says something else", ledger.ErrTaken, found[0].Number, c.Key)
	}
	return found[0], nil
}

// free is a key of the ledger's own that no correction has: callers could take them once.
func (c *change) free(ctx context.Context, key string) (string, error) {
	free := key
	for n := 2; ; n++ {
		var taken bool
		if err := c.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM corrections WHERE key = $1)", free).Scan(&taken); err != nil || !taken {
			return free, err
		}
		free = fmt.Sprintf("%s/%d", key, n)
	}
}

// reverted is the correction that takes another back as r does, zero without one, ErrTaken where it says something
// else.
func (c *change) reverted(ctx context.Context, r *ledger.Correction) (ledger.Correction, error) {
	found, err := readCorrections(ctx, c, "WHERE reverts = $1 AND reverts > 0", r.Reverts) // as the index has it
	if err != nil || len(found) == 0 {
		return ledger.Correction{}, err
	}
	same := *r
	same.Key = found[0].Key
	if !found[0].Same(&same) {
		return found[0], fmt.Errorf("%w: correction %d takes back %d, and says something else", ledger.ErrTaken, found[0].Number, r.Reverts)
	}
	return found[0], nil
}

// check judges a correction's rows, and the entry that it names.
func (b *Books) check(ctx context.Context, c *ledger.Correction) error {
	rows, err := ledger.DecodeRows(c.Payload)
	if err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrCorrection, err)
	}
	rules, err := b.rules(ctx)
	if err != nil {
		return err
	}
	length := int64(rules.Slot / time.Second)
	var refused []string
	for i := range rows {
		err := rules.Judge("", &rows[i])
		if errors.Is(err, ledger.ErrUnchecked) {
			return err
		}
		if err == nil && rows[i].Slot%length != 0 {
			err = fmt.Errorf("%s is not the start of a slot", time.Unix(rows[i].Slot, 0).UTC().Format(time.RFC3339))
		}
		if err != nil {
			refused = append(refused, fmt.Sprintf("row %d: %v", i+1, err))
		}
	}
	if n := len(refused); n > 0 {
		return fmt.Errorf("%w: %d of %d rows cannot become entries: %s", ledger.ErrCorrection, n, len(rows), strings.Join(refused[:min(n, maxTold)], "; "))
	}
	if c.Entry == (ledger.EntryID{}) {
		return nil
	}
	return b.read(ctx, func(tx *sql.Tx) error {
		entry, _, err := b.entry(ctx, tx, c.Entry)
		if err == nil && (len(rows) != 1 || rows[0].Key() != entry.Key()) {
			err = fmt.Errorf("%w: it is not of the slot and names of entry %d/%d", ledger.ErrCorrection, c.Entry.Height, c.Entry.N)
		}
		return err
	})
}

// insert gives the correction its number, stores it and queues it for the fold.
func (c *change) insert(ctx context.Context, k *ledger.Correction) error {
	if err := c.room(ctx, k); err != nil {
		return err
	}
	if err := c.QueryRowContext(ctx, "SELECT coalesce(max(number), 0) + 1 FROM corrections").Scan(&k.Number); err != nil {
		return err
	}
	k.Actor, k.At = c.actor, c.now
	k.Digest = k.Sum()
	_, err := c.ExecContext(ctx, "INSERT INTO corrections ("+correctionColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
		k.Number, k.Key, k.Kind, k.Negative, k.Payload, k.Rows, k.Reverts, k.Entry.Height, k.Entry.N, k.Reason, k.Actor, k.At, k.Digest[:])
	if err == nil {
		_, err = c.ExecContext(ctx, "INSERT INTO corrections_queue (number, row_count) VALUES ($1, $2)", k.Number, k.Rows)
	}
	return err
}

// room keeps the months of a correction's entries until it is committed, and says which
// were retired: they have no room for entries any more.
func (c *change) room(ctx context.Context, k *ledger.Correction) error {
	entries, err := k.Entries()
	if err != nil {
		return err
	}
	if c.d.holdMonths != "" {
		if _, err := c.ExecContext(ctx, c.d.holdMonths); err != nil {
			return err
		}
	}
	var oldest int64
	if err := c.QueryRowContext(ctx, "SELECT coalesce("+c.d.seconds("min(month)")+", 0) FROM months").Scan(&oldest); err != nil {
		return err
	}
	for i := range entries {
		if entries[i].Slot < oldest {
			return fmt.Errorf("%w: usage before %s is not taken any more, and slot %s is", ledger.ErrCorrection,
				time.Unix(oldest, 0).UTC().Format(time.RFC3339), time.Unix(entries[i].Slot, 0).UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// corrected writes the audit log of a correction that was just made. It says what the newest block had of the
// correction's slots and names, and what that comes to with it.
func (c *change) corrected(ctx context.Context, action, object string, k *ledger.Correction) error {
	entries, err := k.Entries()
	if err != nil {
		return err
	}
	newest, err := sealedBlock(ctx, c.Tx, 0)
	if err != nil {
		return err
	}
	was, err := c.sealed(ctx, entries)
	if err != nil {
		return err
	}
	before := map[string]any{"height": newest.Height, "usage": counts(was)}
	after, sum := summary(k, entries)
	after["usage"] = counts(ledger.Sum{Admitted: was.Admitted + sum.Admitted, Overage: was.Overage + sum.Overage, Denied: was.Denied + sum.Denied})
	return c.audit(ctx, action, object, before, after)
}

func counts(s ledger.Sum) map[string]int64 {
	return map[string]int64{"admitted": s.Admitted, "overage": s.Overage, "denied": s.Denied}
}

// sealed adds up what blocks hold of the slots and names of rows.
func (c *change) sealed(ctx context.Context, rows []ledger.Row) (ledger.Sum, error) {
	const atOnce = 500
	var high, low ledger.Sum
	seen := make(map[string]bool, len(rows))
	var places []string
	first, last := int64(math.MaxInt64), int64(0)
	read := func() error {
		if len(places) == 0 {
			return nil
		}
		half := func(expression string) string { return "CAST(coalesce(sum(" + expression + "), 0) AS bigint)" }
		var h, l ledger.Sum
		err := c.QueryRowContext(ctx, "WITH places(key, slot) AS (VALUES "+strings.Join(places, ", ")+") SELECT "+
			half("e.admitted >> 32")+", "+half("e.admitted & 4294967295")+", "+half("e.overage >> 32")+", "+half("e.overage & 4294967295")+", "+
			half("e.denied >> 32")+", "+half("e.denied & 4294967295")+
			" FROM places p JOIN entries e ON e.key = p.key AND e.slot = p.slot"+c.d.during(first, last+1)).
			Scan(&h.Admitted, &l.Admitted, &h.Overage, &l.Overage, &h.Denied, &l.Denied)
		high = ledger.Sum{Admitted: high.Admitted + h.Admitted, Overage: high.Overage + h.Overage, Denied: high.Denied + h.Denied}
		low = ledger.Sum{Admitted: low.Admitted + l.Admitted, Overage: low.Overage + l.Overage, Denied: low.Denied + l.Denied}
		places, first, last = nil, math.MaxInt64, 0
		return err
	}
	for i := range rows {
		place := fmt.Sprintf("(%s, %d)", c.d.literal(ledger.KeyOf(&rows[i])), rows[i].Slot)
		if seen[place] {
			continue
		}
		seen[place] = true
		places, first, last = append(places, place), min(first, rows[i].Slot), max(last, rows[i].Slot)
		if len(places) == atOnce {
			if err := read(); err != nil {
				return ledger.Sum{}, err
			}
		}
	}
	err := read()
	return ledger.SumOf(high, low), err
}

// summary is what the audit log keeps of a correction, with its sum.
func summary(c *ledger.Correction, entries []ledger.Row) (s map[string]any, sum ledger.Sum) {
	for _, e := range entries {
		sum.Admitted += e.Admitted
		sum.Overage += e.Overage
		sum.Denied += e.Denied
	}
	s = map[string]any{"key": c.Key, "rows": c.Rows, "admitted": sum.Admitted, "overage": sum.Overage, "denied": sum.Denied, "reason": c.Reason}
	if len(entries) == 1 {
		s["tenant"], s["limit"], s["meter"] = entries[0].Tenant, entries[0].Limit, entries[0].Meter
	}
	if c.Reverts != 0 {
		s["reverts"] = c.Reverts
	}
	if c.Entry.Height != 0 {
		s["entry"] = fmt.Sprintf("%d/%d", c.Entry.Height, c.Entry.N)
	}
	return s, sum
}

// Revert is ledger.Books'.
func (b *Books) Revert(ctx context.Context, actor, reason string, number int64) (ledger.Correction, error) {
	kept, err := b.Correction(ctx, number)
	if err != nil {
		return ledger.Correction{}, err
	}
	r, err := kept.Revert(reason)
	if err != nil {
		return r, err
	}
	// Its rows were taken once; they are not judged again, so that it can always be taken back.
	var there ledger.Correction
	err = b.change(ctx, actor, func(ch *change) error {
		if there, err = ch.reverted(ctx, &r); err != nil || there.Number != 0 {
			return err
		}
		if r.Key, err = ch.free(ctx, r.Key); err != nil {
			return err
		}
		if err := ch.insert(ctx, &r); err != nil {
			return err
		}
		there = r
		return ch.corrected(ctx, "ledger.revert", strconv.FormatInt(r.Number, 10), &r)
	})
	return there, err
}

// Corrections is ledger.Books'.
func (b *Books) Corrections(ctx context.Context, before int64, n int) ([]ledger.KeptCorrection, error) {
	return b.kept(ctx, "WHERE $1 = 0 OR c.number < $1 ORDER BY c.number DESC LIMIT $2", before, max(1, min(n, maxPage)))
}

// Correction is ledger.Books'.
func (b *Books) Correction(ctx context.Context, number int64) (ledger.KeptCorrection, error) {
	return b.one(ctx, strconv.FormatInt(number, 10), "WHERE c.number = $1", number)
}

// CorrectionOf is ledger.Books'.
func (b *Books) CorrectionOf(ctx context.Context, key string) (ledger.KeptCorrection, error) {
	return b.one(ctx, "of key "+strconv.Quote(key), "WHERE c.key = $1", key)
}

func (b *Books) one(ctx context.Context, name, where string, arg any) (ledger.KeptCorrection, error) {
	found, err := b.kept(ctx, where, arg)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: correction %s", ledger.ErrNotFound, name)
	}
	if err != nil {
		return ledger.KeptCorrection{}, err
	}
	return found[0], nil
}

func (b *Books) kept(ctx context.Context, where string, args ...any) ([]ledger.KeptCorrection, error) {
	columns := "c." + strings.ReplaceAll(correctionColumns, ", ", ", c.")
	var all []ledger.KeptCorrection
	rows, err := b.db.QueryContext(ctx, `SELECT `+columns+`, coalesce((SELECT max(e.height) FROM entries e WHERE e.correction = c.number AND e.correction > 0),
			(SELECT max(a.height) FROM archived_corrections a WHERE a.correction = c.number), 0),
		coalesce((SELECT r.number FROM corrections r WHERE r.reverts = c.number AND r.reverts > 0), 0)
		FROM corrections c `+where, args...)
	err = each(rows, err, func(rows *sql.Rows) error {
		var k ledger.KeptCorrection
		err := scanCorrection(&k.Correction, rows.Scan, &k.Height, &k.RevertedBy)
		all = append(all, k)
		return err
	})
	return all, b.classify(err)
}

// classified names an engine's errors, and leaves those that the ledger has named.
func classified(err error, classify func(error) error) error {
	for _, named := range []error{ledger.ErrCorrection, ledger.ErrTaken, ledger.ErrNotFound, ledger.ErrRetention} {
		if errors.Is(err, named) {
			return err
		}
	}
	return classify(err)
}
