package sqlbooks

import (
	"context"
	"database/sql"
	"errors"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

const (
	// aheadRows is how many rows are handed over at a time. aheadParts is how many such parts of a chunk are
	// held: a few hundred kilobytes, whatever the chunk has.
	aheadRows  = 500
	aheadParts = 4
)

// ahead reads the chunks of a breakdown, the next one while the reader takes the rows of the one before. The
// database sorts a chunk before its first row comes. Without ahead, it and the reader would wait for each other
// in turns. It holds two connections then, and aheadParts of each chunk.
type ahead struct {
	b      *Books
	q      *ledger.BreakdownQuery
	height int64
	chunks []ledger.Chunk
	ctx    context.Context
	cancel context.CancelFunc
	next   int          // the first chunk that was not begun
	begun  []*aheadRead // those that were, and are not read; the oldest first
}

// aheadRead is a chunk that is read.
type aheadRead struct {
	parts chan []*ledger.BreakdownRow
	err   error // once parts is closed
}

func (b *Books) ahead(ctx context.Context, q *ledger.BreakdownQuery, height int64, chunks []ledger.Chunk) *ahead {
	a := &ahead{b: b, q: q, height: height, chunks: chunks}
	a.ctx, a.cancel = context.WithCancel(ctx)
	return a
}

// stop ends the reading, and waits for it.
func (a *ahead) stop() {
	a.cancel()
	for _, r := range a.begun {
		for range r.parts { // the reading goroutine must not wait for room
		}
	}
}

// begin has the next chunk read, where there is one.
func (a *ahead) begin() {
	if a.next == len(a.chunks) {
		return
	}
	c := a.chunks[a.next]
	a.next++
	r := &aheadRead{parts: make(chan []*ledger.BreakdownRow, aheadParts)}
	a.begun = append(a.begun, r)
	go func() {
		defer close(r.parts)
		r.err = a.read(c, r.parts)
	}()
}

// chunk hands the rows of chunk i to emit; chunks are asked for one after another. It reports
// whether emit had enough.
func (a *ahead) chunk(i int, emit func(*ledger.BreakdownRow) error) (enough bool, err error) {
	if a.next == i {
		a.begin()
	}
	r := a.begun[0]
	first := true
	for part := range r.parts {
		if first && a.q.Rows == 0 { // a page is mostly one chunk's
			first = false
			a.begin()
		}
		for _, row := range part {
			if err := emit(row); err != nil {
				return errors.Is(err, errEnough), without(err, errEnough)
			}
		}
	}
	a.begun = a.begun[1:]
	return false, r.err
}

// without is err, or nil where it is that one.
func without(err, that error) error {
	if errors.Is(err, that) {
		return nil
	}
	return err
}

// read reads a chunk in a snapshot of its own.
func (a *ahead) read(c ledger.Chunk, parts chan<- []*ledger.BreakdownRow) error {
	send := func(part []*ledger.BreakdownRow) error {
		select {
		case parts <- part:
			return nil
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
	return a.b.read(a.ctx, func(tx *sql.Tx) error {
		newest, err := sealedBlock(a.ctx, tx, 0)
		if err != nil {
			return err
		}
		s := a.b.d.breakdown(a.q, c, a.height, newest.Height > a.height)
		scan := s.scanner()
		var part []*ledger.BreakdownRow
		rows, err := tx.QueryContext(a.ctx, s.text, s.args...)
		err = each(rows, err, func(rows *sql.Rows) error {
			row, err := scan(rows)
			if err != nil {
				return err
			}
			if part = append(part, row); len(part) < aheadRows {
				return nil
			}
			full := part
			part = make([]*ledger.BreakdownRow, 0, aheadRows)
			return send(full)
		})
		if err != nil || len(part) == 0 {
			return err
		}
		return send(part)
	})
}
