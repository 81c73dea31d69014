package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/loadtest/gateway"
	"github.com/f4ee788f/quota/loadtest/stack"
)

// account is one agent's usage of one tenant.
type account struct{ agent, tenant string }

// book is the ledger's contents. They are read from its facts without the product's code, except for the encoding of
// rows.
type book struct {
	units   map[account]int64
	held    map[account]int64            // of these, in quarantine: kept, and an operator's to release
	lives   map[string]map[account]int64 // units by epoch, as agent@epoch: for who looks for a difference
	reports int
}

// read reads every report that was acknowledged.
func (s *site) read(ctx context.Context) (b book, err error) {
	b = book{units: make(map[account]int64), held: make(map[account]int64), lives: make(map[string]map[account]int64)}
	db, err := pgx.Connect(ctx, s.postgres.URL(ledgerDB, "", ""))
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	type row struct {
		agent      string
		epoch, seq int64
		n          int
	}
	held := make(map[row]bool)
	rows, err := db.Query(ctx, "SELECT agent, epoch, seq, row_number FROM quarantine")
	if err != nil {
		return b, err
	}
	var r row
	if _, err := pgx.ForEachRow(rows, []any{&r.agent, &r.epoch, &r.seq, &r.n}, func() error {
		if r.n < 0 {
			return fmt.Errorf("a whole report is in quarantine: agent %s, epoch %d, number %d", r.agent, r.epoch, r.seq)
		}
		held[r] = true
		return nil
	}); err != nil {
		return b, err
	}
	if rows, err = db.Query(ctx, "SELECT agent, epoch, seq, payload FROM reports"); err != nil {
		return b, err
	}
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&r.agent, &r.epoch, &r.seq, &payload}, func() error {
		all, err := ledger.DecodeRows(payload)
		if err != nil {
			return err
		}
		b.reports++
		at := fmt.Sprintf("%s@%d", r.agent, r.epoch)
		if b.lives[at] == nil {
			b.lives[at] = make(map[account]int64)
		}
		for i, l := range all {
			a := account{r.agent, l.Tenant}
			b.lives[at][a] += l.Admitted
			b.units[a] += l.Admitted
			if held[row{r.agent, r.epoch, r.seq, i}] {
				b.held[a] += l.Admitted
			}
		}
		return nil
	})
	return b, err
}

// counted is an agent's gateway's count of a tenant.
type counted struct {
	units int64
	open  int64 // asked and never answered: in flight at a kill, or the answer was lost
}

// verdict compares the ledger's units of an account with the count. It is the rule of the whole suite: units ≤ ledger ≤
// units + open, whatever was killed.
func (c counted) verdict(units int64) (lost, doubled int64) {
	return max(c.units-units, 0), max(units-c.units-c.open, 0)
}

// trails reads every gateway's count.
func (s *site) trails() (map[account]counted, *gateway.Counts, error) {
	all, sum := make(map[account]counted), gateway.NewCounts()
	for _, m := range s.every() {
		mine := gateway.NewCounts()
		var read []string
		for _, l := range m.lives {
			if slices.Contains(read, l.trail) {
				continue
			}
			read = append(read, l.trail)
			c, err := gateway.ReadTrail(filepath.Join(s.dir, l.trail))
			if err != nil {
				return nil, nil, err
			}
			mine.Add(c)
		}
		sum.Add(mine)
		for _, t := range tenantNames() {
			n := int64(len(mine.Admitted[t]))
			if s.o.control == "lie" && m == s.members[0] {
				n -= n / 100
			}
			all[account{m.id, t}] = counted{units: n, open: mine.Open[t]}
		}
	}
	return all, sum, nil
}

// settled demands that the ledger has what was counted, before ctx ends.
func (s *site) settled(ctx context.Context, r *result) (*gateway.Counts, error) {
	all, sum, err := s.trails()
	if err != nil {
		return nil, err
	}
	b, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	wrong := s.compare(all, b, r)
	var admitted, open, held int64
	for a, c := range all {
		admitted, open = admitted+c.units, open+c.open
		held += b.held[a]
	}
	s.say("gateways counted %d, %d without an answer; the ledger has %d in %d reports, %d of them in quarantine",
		admitted, open, r.acknowledged, b.reports, held)
	if wrong != nil {
		return nil, wrong
	}
	return sum, s.apart(ctx, all, b)
}

// compare compares every account with its count, and says what is wrong.
func (s *site) compare(all map[account]counted, b book, r *result) error {
	r.acknowledged, r.lost, r.doubled = 0, 0, 0
	var errs []error
	accounts := slices.SortedFunc(maps.Keys(all), func(x, y account) int {
		return cmpStrings(x.agent+" "+x.tenant, y.agent+" "+y.tenant)
	})
	for _, a := range accounts {
		c, units := all[a], b.units[a]
		lost, doubled := c.verdict(units)
		r.acknowledged += units
		r.lost += lost
		r.doubled += doubled
		if lost > 0 || doubled > 0 {
			err := fmt.Errorf("%s, %s: counted %d, and %d unanswered; the ledger has %d", a.agent, a.tenant, c.units, c.open, units)
			s.say("WRONG: %v", err)
			s.explain(a, b)
			errs = append(errs, err)
		}
	}
	for a, units := range b.units {
		if _, ok := all[a]; !ok && units != 0 {
			r.acknowledged += units
			r.doubled += units
			errs = append(errs, fmt.Errorf("%s, %s: the ledger has %d units that nobody asked for", a.agent, a.tenant, units))
		}
	}
	return errors.Join(errs...)
}

// explain prints an account's lives as both sides have them.
func (s *site) explain(a account, b book) {
	for _, m := range s.every() {
		if m.id != a.agent {
			continue
		}
		for _, l := range m.lives {
			trail, err := gateway.ReadTrail(filepath.Join(s.dir, l.trail))
			if err != nil {
				s.say("  %v", err)
				continue
			}
			to := l.to
			if to == 0 {
				to = 1 << 62
			}
			s.say("  life %d to %d: counted %d, %d unanswered in all of its trail", l.from, l.to, trail.Before(a.tenant, to)-trail.Before(a.tenant, l.from), trail.Open[a.tenant])
		}
		for at, units := range b.lives {
			if strings.HasPrefix(at, m.id+"@") {
				s.say("  the ledger of %s: %d", at, units[a])
			}
		}
	}
}

func cmpStrings(x, y string) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// apart tries the comparison itself, and asks the product for the same sums.
func (s *site) apart(ctx context.Context, all map[account]counted, b book) error {
	for a, c := range all {
		for _, wrong := range []int64{c.units - 1, c.units + c.open + 1} {
			if lost, doubled := c.verdict(wrong); lost+doubled != 1 {
				return fmt.Errorf("%s, %s: a unit more or less in the ledger makes no difference to the comparison", a.agent, a.tenant)
			}
		}
	}
	want := make(map[string]int64)
	for a, units := range b.units {
		if n := units - b.held[a]; n != 0 {
			want[a.tenant] += n
		}
	}
	got, err := stack.Usage(ctx, s.conn, "requests", tenantNames())
	if err != nil {
		return err
	}
	for _, t := range tenantNames() {
		if got[t] == 0 {
			delete(got, t)
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("usage as the server answers is %v, the reports sum up to %v", got, want)
	}
	return nil
}
