package billing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Format is the number of the statement's encoding and of its rules. With another number the same input may give other
// bytes: a closed statement is read by its own rules.
const Format = 1

// Block names a sealed block of the ledger.
type Block struct {
	Height int64  `json:"height"`
	Hash   string `json:"hash"` // hexadecimal
}

// Input is everything that a statement depends on.
type Input struct {
	Tenant        string
	Cycle         Cycle
	Period        Period
	Block         Block // entries up to it are in Usage, and no others
	Since         int64 // height of the statement before; 0 for the first
	Subscriptions []Subscription
	Versions      []Version
	Usage         []Usage  // of the period, and of earlier ones where there is late usage
	Earlier       []Period // that statements before were made for
	Credits       []Credit
	Quarantined   *Quarantined // of the tenant and its members, of slots before the period's end; nil for nothing
	// Elsewhere is when another tenant paid than the one whose statement this is, on the grid. Usage of those times is
	// on that one's statements.
	Elsewhere []Range
	// Members are tenants below that this one pays for, or paid for once, by id. Each has its own plans, versions and
	// usage. Their cycle, period, block, earlier periods and credits are this one's.
	Members []Input
}

// Quarantined is the usage that was in quarantine when a statement was made, and is not on it. Usage released later
// comes with a later statement, as late usage; discarded usage is on none.
type Quarantined struct {
	Rows  int64 `json:"rows"`
	Units int64 `json:"units"`
}

// Pays reports whether the statement's tenant pays for any part of a period.
func (in *Input) Pays(p Period) bool {
	at := p.From
	for _, r := range in.Elsewhere { // in order, and apart
		if r.From > at {
			break
		}
		at = max(at, r.To)
	}
	return at < p.To
}

// Total is the total of a statement in one currency: Charges + Adjustments − Credits + Carried. It is never below 0.
type Total struct {
	Currency    string `json:"currency"`
	Charges     int64  `json:"charges"`
	Adjustments int64  `json:"adjustments"`
	Credits     int64  `json:"credits"`
	Carried     int64  `json:"carried,omitempty"` // owed to the tenant: a credit that closing makes
	Total       int64  `json:"total"`
}

// Day is a meter's count on a day of the tenant's zone.
type Day struct {
	Date     string `json:"date"`
	Meter    string `json:"meter"`
	Admitted int64  `json:"admitted"`
	Overage  int64  `json:"overage"`
}

// Span is a period as a statement has it.
type Span struct {
	Name string `json:"name"`
	Zone string `json:"zone"`
	Day  int    `json:"day"` // of the month, that periods begin on
	From string `json:"from"`
	To   string `json:"to"`
}

// Statement is what a tenant owes for a period, and how the amount comes about. Times are RFC 3339 in the tenant's
// zone, or Unix seconds; amounts are minor units.
type Statement struct {
	Format  int     `json:"format"`
	Tenant  string  `json:"tenant"`
	Period  Span    `json:"period"`
	Block   Block   `json:"block"`
	Since   int64   `json:"since"`
	Terms   []Term  `json:"terms"`
	Lines   []Line  `json:"lines"`
	Credits []Burn  `json:"credits"`
	Totals  []Total `json:"totals"` // by currency
	Days    []Day   `json:"days"`   // by date and meter
	// Quarantined is left out if nothing was in quarantine.
	Quarantined *Quarantined `json:"quarantined,omitempty"`
}

// Rate makes the statement. Errors wrap ErrPeriod, or ErrAmount if an amount is too large to keep.
func Rate(in *Input) (*Statement, error) {
	if in.Period.From >= in.Period.To {
		return nil, fmt.Errorf("%w: it ends before it begins", ErrPeriod)
	}
	zone := in.Cycle.zone()
	stamp := func(t int64) string { return time.Unix(t, 0).In(zone).Format(time.RFC3339) }
	s := &Statement{
		Format: Format, Tenant: in.Tenant, Block: in.Block, Since: in.Since, Lines: []Line{}, Days: []Day{}, Quarantined: in.Quarantined,
		Period: Span{Name: in.Period.Name, Zone: zone.String(), Day: max(1, in.Cycle.Day), From: stamp(in.Period.From), To: stamp(in.Period.To)},
	}
	if err := s.rate(in, in, ""); err != nil {
		return nil, err
	}
	days := make(map[dayOf]*Day)
	addDays(days, in, in, zone)
	for i := range in.Members {
		m := &in.Members[i]
		if err := s.rate(in, m, m.Tenant); err != nil {
			return nil, fmt.Errorf("tenant %s: %w", m.Tenant, err)
		}
		addDays(days, in, m, zone)
	}
	if err := s.total(in); err != nil {
		return nil, err
	}
	s.days(days)
	return s, nil
}

// rate adds the cost of a tenant's usage and plans in the payer's periods. tenant is empty for the payer itself.
func (s *Statement) rate(payer, of *Input, tenant string) error {
	t := newTimeline(of)
	terms, lines, err := t.rate(payer.Period, of.Usage, true)
	if err != nil {
		return fmt.Errorf("period %s: %w", payer.Period.Name, err)
	}
	earlier := slices.Clone(payer.Earlier)
	slices.SortFunc(earlier, func(a, b Period) int { return cmp.Compare(a.From, b.From) })
	for _, p := range earlier {
		more, err := t.adjust(p, of.Usage)
		if err != nil {
			return fmt.Errorf("adjust period %s: %w", p.Name, err)
		}
		lines = append(lines, more...)
	}
	for i := range terms {
		terms[i].Tenant = tenant
	}
	for i := range lines {
		lines[i].Tenant = tenant
	}
	if tenant == "" {
		s.Terms, s.Lines = terms, lines
	} else {
		s.Terms, s.Lines = append(s.Terms, terms...), append(s.Lines, lines...)
	}
	return nil
}

// rate is the terms and lines of a period. Without late, they are as they were before late usage came.
func (t *timeline) rate(p Period, usage []Usage, late bool) ([]Term, []Line, error) {
	terms, err := t.terms(p, func(use func(*Usage)) {
		for i := range usage {
			if late || !usage[i].Late {
				use(&usage[i])
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	lines := []Line{}
	for i := range terms {
		more, err := terms[i].lines(p)
		if err != nil {
			return nil, nil, err
		}
		lines = append(lines, more...)
	}
	return terms, lines, nil
}

// adjust is the change that late usage makes to an earlier period: its amounts now, less its amounts then. So it is
// right for tiers and minimums, and adjustments add up however usage comes in.
func (t *timeline) adjust(p Period, usage []Usage) ([]Line, error) {
	if !slices.ContainsFunc(usage, func(u Usage) bool { return u.Late && p.Has(u.Slot) }) {
		return nil, nil
	}
	_, was, err := t.rate(p, usage, false)
	if err != nil {
		return nil, err
	}
	_, now, err := t.rate(p, usage, true)
	if err != nil {
		return nil, err
	}
	// Two lines are the same if everything but their counts and amounts is.
	key := func(l Line) Line {
		l.Units, l.Included, l.Amount = 0, 0, 0
		return l
	}
	before := make(map[Line]Line, len(was))
	for _, l := range was {
		before[key(l)] = l
	}
	var lines []Line
	add := func(l, old Line) {
		if l == old {
			return
		}
		l.Units, l.Included, l.Amount = l.Units-old.Units, l.Included-old.Included, l.Amount-old.Amount
		l.Period = p.Name
		lines = append(lines, l)
	}
	for _, l := range now {
		add(l, before[key(l)])
		delete(before, key(l))
	}
	for _, l := range was { // what is no more
		if old, ok := before[key(l)]; ok {
			add(key(l), old)
		}
	}
	return lines, nil
}

// total adds up the lines by currency and lets credits pay.
func (s *Statement) total(in *Input) error {
	sums := make(map[string]*Total)
	of := func(currency string) *Total {
		if sums[currency] == nil {
			sums[currency] = &Total{Currency: currency}
		}
		return sums[currency]
	}
	for _, l := range s.Lines {
		if l.Period == "" {
			of(l.Currency).Charges += l.Amount
		} else {
			of(l.Currency).Adjustments += l.Amount
		}
	}
	due := make(map[string]int64)
	for currency, t := range sums {
		due[currency] = t.Charges + t.Adjustments
	}
	burns, lines := burn(in.Period, in.Credits, due)
	s.Credits, s.Lines = burns, append(s.Lines, lines...)
	for _, l := range lines {
		of(l.Currency).Credits -= l.Amount
	}
	s.Totals = []Total{}
	for _, t := range sums {
		t.Total = t.Charges + t.Adjustments - t.Credits
		for _, n := range []int64{t.Charges, t.Adjustments, t.Total} {
			if n > MaxAmount || n < -MaxAmount {
				return fmt.Errorf("period %s: %w", in.Period.Name, ErrAmount)
			}
		}
		if t.Total < 0 {
			t.Carried, t.Total = -t.Total, 0
		}
		s.Totals = append(s.Totals, *t)
	}
	slices.SortFunc(s.Totals, func(a, b Total) int { return strings.Compare(a.Currency, b.Currency) })
	for _, c := range s.Carried() {
		s.Lines = append(s.Lines, Line{Kind: KindCarried, Currency: c.Currency, Amount: c.Amount, Credit: c.Credit})
	}
	return nil
}

type dayOf struct{ date, meter string }

// addDays adds up a tenant's usage of the payer's period by day.
func addDays(sums map[dayOf]*Day, payer, of *Input, zone *time.Location) {
	for i := range of.Usage {
		u := &of.Usage[i]
		if !payer.Period.Has(u.Slot) || u.Meter == "" || within(of.Elsewhere, u.Slot) {
			continue
		}
		at := dayOf{time.Unix(u.Slot, 0).In(zone).Format(time.DateOnly), u.Meter}
		if sums[at] == nil {
			sums[at] = &Day{Date: at.date, Meter: at.meter}
		}
		sums[at].Admitted += u.Admitted
		sums[at].Overage += u.Overage
	}
}

func (s *Statement) days(sums map[dayOf]*Day) {
	for _, d := range sums {
		s.Days = append(s.Days, *d)
	}
	slices.SortFunc(s.Days, func(a, b Day) int { return cmp.Or(strings.Compare(a.Date, b.Date), strings.Compare(a.Meter, b.Meter)) })
}

// Encode writes the statement in its only encoding, and returns its digest, by which a closed statement is known.
func (s *Statement) Encode() (document []byte, digest string, err error) {
	if document, err = json.Marshal(s); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(document)
	return document, hex.EncodeToString(sum[:]), nil
}

// Decode reads what Encode wrote, and checks it against the digest.
func Decode(document []byte, digest string) (*Statement, error) {
	sum := sha256.Sum256(document)
	if got := hex.EncodeToString(sum[:]); got != digest {
		return nil, fmt.Errorf("the statement's digest is %s, and it was made with %s", got, clip(digest))
	}
	s := new(Statement)
	return s, json.Unmarshal(document, s)
}

// Edges are the period's begin and end, and all times between at which a plan or a price changes, in Unix seconds.
// Usage between two edges counts alike in any slot, except for the day on which it is shown.
func (in *Input) Edges() []int64 { return newTimeline(in).edges(in.Period) }

// Divided are the hours of the period, Unix seconds, within which slots may count differently: by plan or price, by
// day, or in no period. In all other hours usage may be given at the beginning of the hour: the statement is the same.
func (in *Input) Divided() (hours []int64) {
	t := newTimeline(in)
	for _, edge := range t.edges(in.Period) {
		if at := floor(edge, 3600); at != edge {
			hours = append(hours, at)
		}
	}
	zone := in.Cycle.zone()
	for at := floor(in.Period.From, 3600); at < in.Period.To; at += 3600 {
		first, last := time.Unix(at, 0).In(zone), time.Unix(at+3599, 0).In(zone)
		_, turn := first.ZoneBounds() // clocks may turn back over midnight and on again
		if first.Day() != last.Day() || !turn.IsZero() && turn.Unix() > at && turn.Unix() < at+3600 {
			hours = append(hours, at)
		}
	}
	slices.Sort(hours)
	return slices.Compact(hours)
}

// floor is the last whole multiple of size that is not after t.
func floor(t, size int64) int64 { return t - (t%size+size)%size }
