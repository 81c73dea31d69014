package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/loadtest/chaos/proxy"
	quotav1 "github.com/f4ee788f/quota/proto/quota/v1"
)

// rules are rules of every ledger, as queries that find violations.
var rules = []struct{ name, query string }{
	{"reports have no gaps, and add up to their frontier", `
		SELECT count(*) FROM (SELECT agent, epoch, count(*) AS n, max(seq) AS seq, sum(total_after - total_before) AS units, max(total_after) AS total FROM reports GROUP BY agent, epoch) r
		FULL JOIN frontier f USING (agent, epoch)
		WHERE r.n IS DISTINCT FROM f.seq AND f.seq > 0 OR r.seq IS DISTINCT FROM f.seq AND f.seq > 0 OR r.units IS DISTINCT FROM r.total OR r.units IS DISTINCT FROM f.total AND f.seq > 0`},
	{"everything is folded", `SELECT count(*) FROM queue`},
	{"nothing is in quarantine", `SELECT count(*) FROM quarantine`},
	{"no epoch is fenced", `SELECT count(*) FROM frontier WHERE state = 'fenced'`},
	{"blocks follow one another without a gap", `
		SELECT count(*) FROM blocks b LEFT JOIN blocks p ON p.height = b.height - 1
		WHERE b.height > 1 AND (p.hash IS NULL OR p.hash <> b.previous)`},
	{"blocks hold every report that says something once", `SELECT abs((SELECT coalesce(sum(reports), 0) FROM blocks) - (SELECT count(*) FROM reports WHERE row_count > 0 OR closed))`},
	{"roll-ups are the sums of entries", `
		SELECT count(*) FROM (SELECT key, slot - slot % 3600 AS hour, sum(admitted) AS admitted, sum(denied) AS denied FROM entries GROUP BY 1, 2) e
		FULL JOIN rollups r USING (key, hour)
		WHERE e.admitted IS DISTINCT FROM r.admitted OR e.denied IS DISTINCT FROM r.denied`},
}

// sound demands the rules, before ctx ends.
func (s *site) sound(ctx context.Context) (err error) {
	db, err := pgx.Connect(ctx, s.postgres.URL(ledgerDB, "", ""))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	for _, r := range rules {
		var n int64
		waited := s.until(ctx, r.name, func() bool {
			err = db.QueryRow(ctx, r.query).Scan(&n)
			return err != nil || n == 0
		})
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if waited != nil {
			s.tellFolds(context.WithoutCancel(ctx), db)
			return fmt.Errorf("the ledger: %s: not so in %d cases", r.name, n)
		}
	}
	s.say("the ledger is sound: %d rules", len(rules))
	if err := s.verify(ctx); err != nil {
		return err
	}
	if s.o.monthEnd {
		return s.turned(ctx, db)
	}
	return nil
}

// verify makes the calls of `quotactl ledger verify`.
func (s *site) verify(ctx context.Context) error {
	stream, err := quotav1.NewLedgerServiceClient(s.conn).Verify(ctx, &quotav1.VerifyRequest{})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		r := m.GetResult()
		if r == nil {
			continue
		}
		for _, f := range r.GetFaults() {
			s.say("WRONG: %s %s: %s", f.GetTable(), f.GetWhich(), f.GetWhat())
		}
		if n := int64(len(r.GetFaults())) + r.GetMoreFaults(); n > 0 {
			return fmt.Errorf("verify: %d faults", n)
		}
		for _, l := range r.GetLost() {
			s.say("WRONG: agent %s, epoch %d is %s, although it has a journal: %s", l.GetAgent(), l.GetEpoch(), l.GetState(), l.GetReason())
		}
		if n := int64(len(r.GetLost())) + r.GetMoreLost(); n > 0 {
			return fmt.Errorf("verify: %d starts of agents are lost", n)
		}
		s.say("verify: sound: %d epochs, %d reports, %d blocks, %d entries, %d roll-ups", r.GetEpochs(), r.GetReports(), r.GetBlocks(), r.GetEntries(), r.GetRollups())
		return nil
	}
}

// tellFolds prints which reports are in no block, or in two, to help find a difference.
func (s *site) tellFolds(ctx context.Context, db *pgx.Conn) {
	type id struct {
		agent      string
		epoch, seq int64
	}
	folded := make(map[id][]int64)
	var height int64
	var encoded []byte
	rows, err := db.Query(ctx, "SELECT height, sources FROM blocks ORDER BY height")
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&height, &encoded}, func() error {
			sources, err := ledger.DecodeSources(encoded)
			for _, c := range sources {
				for n := c.First; n <= c.Last; n++ {
					at := id{c.Epoch.Agent, c.Epoch.Epoch, n}
					folded[at] = append(folded[at], height)
				}
			}
			return err
		})
	}
	if err == nil {
		rows, err = db.Query(ctx, "SELECT agent, epoch, seq FROM reports WHERE row_count > 0 OR closed")
	}
	var r id
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&r.agent, &r.epoch, &r.seq}, func() error {
			if n := len(folded[r]); n != 1 {
				s.say("  %s, epoch %d, report %d is in blocks %v", r.agent, r.epoch, r.seq, folded[r])
			}
			delete(folded, r)
			return nil
		})
	}
	for at, heights := range folded {
		s.say("  blocks %v have %s, epoch %d, report %d, which is not there", heights, at.agent, at.epoch, at.seq)
	}
	if err != nil {
		s.say("  %v", err)
	}
}

// turned demands usage on both sides of the month's end.
func (s *site) turned(ctx context.Context, db *pgx.Conn) error {
	rows, err := db.Query(ctx, "SELECT to_char(month, 'YYYY-MM'), sum(admitted)::bigint FROM entries GROUP BY 1 HAVING sum(admitted) > 0 ORDER BY 1")
	if err != nil {
		return err
	}
	var month string
	var units int64
	months := 0
	if _, err := pgx.ForEachRow(rows, []any{&month, &units}, func() error {
		months++
		s.say("usage of %s: %d", month, units)
		return nil
	}); err != nil {
		return err
	}
	if months != 2 {
		return fmt.Errorf("a month was to end in the middle, and there is usage of %d", months)
	}
	return nil
}

// control sends a report once more, which must change nothing. Then it sends the report's units under another epoch, as
// settlement without its guard would: the comparison must find them.
func (s *site) control(ctx context.Context) error {
	sample, err := s.anyReport(ctx)
	if err != nil {
		return err
	}
	api := quotav1.NewLeaseServiceClient(s.conn)
	var before, same, more result
	check := func(r *result) error {
		all, _, err := s.trails()
		if err != nil {
			return err
		}
		b, err := s.read(ctx)
		if err != nil {
			return err
		}
		for a, c := range all {
			_, doubled := c.verdict(b.units[a])
			r.doubled += doubled
			r.acknowledged += b.units[a]
		}
		return nil
	}
	if err := check(&before); err != nil {
		return err
	}
	answer, err := api.Settle(ctx, &quotav1.SettleRequest{Reports: []*quotav1.Report{sample}})
	if err != nil {
		return err
	}
	if status := answer.GetReceipts()[0].GetStatus(); status != quotav1.Receipt_STATUS_ALREADY {
		return fmt.Errorf("control: a report sent again is answered %v, want ALREADY", status)
	}
	if err := check(&same); err != nil {
		return err
	}
	twin, err := proxy.Twin(sample)
	if err != nil {
		return err
	}
	if _, err := api.Settle(ctx, twin); err != nil {
		return err
	}
	if err := check(&more); err != nil {
		return err
	}
	units := sample.GetTotalAfter() - sample.GetTotalBefore()
	if same != before {
		return fmt.Errorf("control: a report sent again changed the ledger: %+v, before %+v", same, before)
	}
	if more.acknowledged != before.acknowledged+units || more.doubled == 0 {
		return fmt.Errorf("control: %d units settled twice on purpose are not found: %+v, before %+v", units, more, before)
	}
	s.say("control: a report again: nothing changed. Its %d units under another epoch: found, doubled=%d", units, more.doubled)
	return nil
}

// anyReport reads from the ledger a report that moved units, of an agent that was not killed.
func (s *site) anyReport(ctx context.Context) (p *quotav1.Report, err error) {
	db, err := pgx.Connect(ctx, s.postgres.URL(ledgerDB, "", ""))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	p = &quotav1.Report{}
	err = db.QueryRow(ctx, `SELECT agent, epoch, seq, total_before, total_after, through_ms, closed, payload, digest FROM reports
		WHERE agent = $1 AND total_after > total_before ORDER BY total_after - total_before DESC LIMIT 1`, s.members[gateways-1].id).
		Scan(&p.Agent, &p.Epoch, &p.Seq, &p.TotalBefore, &p.TotalAfter, &p.ThroughMs, &p.Closed, &p.Payload, &p.Digest)
	return p, err
}
