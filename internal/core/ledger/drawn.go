package ledger

// OverdrawnPrefix begins the reason of a quarantined row whose agent settled more of a limit than it was
// granted. It holds back its tenant's statement: it may be usage of leases whose record is lost.
const OverdrawnPrefix = "overdrawn: "

// Drawn is what an agent was granted and has settled, by limit, under one run of leases. The run is the leases
// of one epoch, and all that is settled under it or later epochs, until the next epoch with leases. An agent
// whose epoch takes no more reports goes on under another. Its leases stay those of the first.
type Drawn struct {
	Root    int64 // epoch of the leases, or of debts that renewals told; the one asked for if there is none
	Next    int64 // the next epoch with leases; 0 for none
	Total   int64 // units settled under the epoch asked for
	Through int64 // all usage before is settled under the run, Unix milliseconds; 0 if nothing is
	Limits  map[string]DrawnLimit
	// Recorded is when servers last recorded a renewal of the run, Unix milliseconds; 0 for never. Renewals are
	// recorded every ten seconds.
	Recorded int64
	// Partial is set if quarantine has more rows than were looked at: then Settled counts some of them.
	Partial bool
}

// DrawnLimit is one limit of Drawn.
type DrawnLimit struct {
	Recorded Recorded
	Settled  int64 // units, folded or not, without those of rows that went to quarantine
	// Overdrawn is units that are in quarantine for exceeding the grants, released or not.
	Overdrawn int64
}

// MaxDrawnLimits bounds Drawn.Limits: those beyond, in the order of their names, are left out.
const MaxDrawnLimits = 2048

// LimitUnits is what a report holds of one limit under one policy version.
type LimitUnits struct {
	Limit   string
	Version int64
	Units   int64 // admitted
}

// ByLimit adds up the admitted units of the report's rows. Limits that admitted nothing are left out.
func (r *Report) ByLimit() ([]LimitUnits, error) {
	table, rows, err := decodeCoded(r.Payload)
	if err != nil {
		return nil, err
	}
	type key struct {
		limit   uint32
		version int64
	}
	at := make(map[key]int)
	var all []LimitUnits
	for i := range rows {
		c := &rows[i]
		if c.admitted == 0 {
			continue
		}
		k := key{c.limit, c.version}
		n, ok := at[k]
		if !ok {
			n = len(all)
			at[k] = n
			all = append(all, LimitUnits{Limit: table[c.limit], Version: c.version})
		}
		all[n].Units += c.admitted
	}
	return all, nil
}
