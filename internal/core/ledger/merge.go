package ledger

import (
	"cmp"
	"slices"
	"sort"
)

// merged adds rows up over many reports; it is what a block costs for each row. Names are numbers in it, and
// each string is looked up once for each report. Reports that hold the same keys one after another find each
// key by the one before.
type merged struct {
	numbers map[string]uint32
	names   []string
	at      map[mergedKey]int32
	sums    []mergedSum
	local   []uint32 // scratch: the numbers of a report's strings
	named   int      // bytes of the sums' names, each with its own
}

type mergedKey struct {
	slot, version                          int64
	tenant, limit, meter, plan, attributes uint32
}

type mergedSum struct {
	mergedKey
	sum   Sum
	after int32 // place of the key that followed it in the report before
}

func newMerged() *merged {
	return &merged{numbers: map[string]uint32{}, at: map[mergedKey]int32{}}
}

// add adds the rows of one report, whose strings table has.
func (m *merged) add(table []string, rows []codedRow) {
	m.local = m.local[:0]
	for _, s := range table {
		n, ok := m.numbers[s]
		if !ok {
			n = uint32(len(m.names))
			m.numbers[s], m.names = n, append(m.names, s)
		}
		m.local = append(m.local, n)
	}
	last := int32(-1)
	for i := range rows {
		r := &rows[i]
		key := mergedKey{r.slot, r.version, m.local[r.tenant], m.local[r.limit], m.local[r.meter], m.local[r.plan], m.local[r.attributes]}
		n := int32(-1)
		if last >= 0 {
			if n = m.sums[last].after; n >= 0 && m.sums[n].mergedKey != key {
				n = -1
			}
		}
		if n < 0 {
			n = m.find(key)
			if last >= 0 {
				m.sums[last].after = n
			}
		}
		// A report's bounds keep a block's sums far from overflow.
		s := &m.sums[n].sum
		s.Admitted += r.admitted
		s.Overage += r.overage
		s.Denied += r.denied
		last = n
	}
}

func (m *merged) find(key mergedKey) int32 {
	n, ok := m.at[key]
	if !ok {
		n = int32(len(m.sums))
		m.at[key] = n
		m.sums = append(m.sums, mergedSum{mergedKey: key, after: -1})
		m.named += len(m.names[key.tenant]) + len(m.names[key.limit]) + len(m.names[key.meter]) + len(m.names[key.plan]) + len(m.names[key.attributes])
	}
	return n
}

// rows returns the sums in the order of CompareKey.
func (m *merged) rows() []Row {
	order := make([]uint32, len(m.names))
	for i := range order {
		order[i] = uint32(i)
	}
	sort.Slice(order, func(i, j int) bool { return m.names[order[i]] < m.names[order[j]] })
	rank := make([]uint32, len(order)) // numbers that have the strings' order
	for i, n := range order {
		rank[n] = uint32(i)
	}
	slices.SortFunc(m.sums, func(a, b mergedSum) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(rank[a.tenant], rank[b.tenant]), cmp.Compare(rank[a.limit], rank[b.limit]),
			cmp.Compare(rank[a.meter], rank[b.meter]), cmp.Compare(a.version, b.version), cmp.Compare(rank[a.plan], rank[b.plan]),
			cmp.Compare(rank[a.attributes], rank[b.attributes]))
	})
	rows := make([]Row, len(m.sums))
	for i := range m.sums {
		s := &m.sums[i]
		rows[i] = Row{
			Slot: s.slot, Tenant: m.names[s.tenant], Limit: m.names[s.limit], Meter: m.names[s.meter], Version: s.version, Plan: m.names[s.plan],
			Attributes: m.names[s.attributes],
			Admitted:   s.sum.Admitted, Overage: s.sum.Overage, Denied: s.sum.Denied,
		}
	}
	return rows
}
