package ledger

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// MaxUsageLosses bounds the losses that an answer about usage tells.
	MaxUsageLosses = 100
	// MaxLosses bounds those that a verification tells.
	MaxLosses = 1_000
)

// Loss is an epoch that ended, and whose last report is not known to be in. Usage is complete without it.
type Loss struct {
	Epoch  Epoch
	State  string    // StateLost, StateGone or StateFenced
	Reason string    // why nobody waits for it
	Since  time.Time // what it admitted from then on may be missing
	Seen   time.Time // when it last told of more
	Limits []LostUnits
	// Most is the sum over limits that are known. Known is set if all are.
	Most  int64
	Known bool
}

// LostUnits are the most units of one limit that may be missing, over all tenants.
type LostUnits struct {
	Limit string // empty for units of any limit
	Most  int64
	Known bool // false where no grants are recorded
}

// Losses are told newest first.
type Losses struct {
	Told []Loss
	More int64 // how many others there are
}

// Merge adds the losses of another tenant. What both have is told once; those not told may be the same.
func (l *Losses) Merge(o Losses) {
	all := append(slices.Clone(l.Told), o.Told...)
	slices.SortFunc(all, func(a, b Loss) int { return cmp.Or(b.Seen.Compare(a.Seen), a.Epoch.compare(b.Epoch)) })
	all = slices.CompactFunc(all, func(a, b Loss) bool { return a.Epoch == b.Epoch })
	l.Told = all[:min(len(all), MaxUsageLosses)]
	l.More = max(l.More, o.More) + int64(len(all)-len(l.Told))
}

// NewLoss says what may be missing of an epoch: the units that it was granted and that nobody saw again. accounts
// are the epoch's, and those of the epochs that it goes on from: leases stay those of the first.
//
// Spending that nobody recorded is not in it. That is spending without a lease since the agent's last account, and by
// grants that a server had not written when it died.
func NewLoss(f *Frontier, accounts []Reconciled, now time.Time) Loss {
	l := Loss{
		Epoch: f.Epoch, State: f.StateAt(now), Reason: f.unwaited(now), Known: len(accounts) > 0,
		Since: time.UnixMilli(f.through()).UTC(), Seen: time.UnixMilli(f.Seen).UTC(),
	}
	if l.State == StateOpen {
		l.State = StateLost // it is one too many of its agent or key
	}
	if f.Next != 0 { // and the next goes on after units that the ledger has forgotten
		l.Most, l.Known = f.Ends-f.Total, true
		l.Limits = []LostUnits{{Most: l.Most, Known: true}}
		return l
	}
	of := make(map[string]*Reconciled)
	for i := range accounts {
		a := &accounts[i]
		sum := of[a.ID.Limit]
		if sum == nil {
			sum = &Reconciled{ID: a.ID}
			of[a.ID.Limit] = sum
		}
		sum.Recorded.Add(a.Recorded)
		sum.Settled = addUp(sum.Settled, a.Settled)
		if a.Said != nil {
			sum.Said = a.Said
		}
	}
	for _, a := range of {
		if s := a.Said; s != nil && s.Spent > 0 && s.Booked == 0 && a.Settled == 0 {
			continue // it feeds no meter
		}
		u := LostUnits{Limit: a.ID.Limit}
		u.Most, u.Known = a.missing()
		if l.Limits = append(l.Limits, u); u.Known {
			l.Most = addUp(l.Most, u.Most)
		}
		l.Known = l.Known && u.Known
	}
	slices.SortFunc(l.Limits, func(a, b LostUnits) int { return strings.Compare(a.Limit, b.Limit) })
	return l
}

// missing is the most units that were granted, and are neither given back, expired nor settled. It is false where
// no grants are known.
func (r *Reconciled) missing() (most int64, known bool) {
	less := func(a, b int64) int64 { return addUp(a, -max(b, 0)) } // within MaxSum, whatever an agent says
	most = max(less(less(r.Recorded.Granted, r.Recorded.Unrun), r.Recorded.Returned), 0)
	known = r.Recorded.Granted > 0
	if s := r.Said; s != nil {
		known = known || s.Granted > 0
		// What expired by its last account was not spent. A server may have died before it wrote a grant.
		most = max(most, less(less(s.Granted, s.Unrun), s.Returned))
		most = max(less(addUp(most, max(s.Beyond, 0)), s.Expired()), s.Spent, s.Booked)
	}
	return max(less(max(most, r.Recorded.Spent), r.Settled), 0), known
}

// unwaited is why an epoch that ended without its last report holds nothing back.
func (f *Frontier) unwaited(now time.Time) string {
	switch {
	case f.State != StateOpen && f.Reason != "":
		return f.Reason
	case f.silent(now):
		return "it has been silent for a day"
	case f.Succeeded:
		return "a later start of its agent reports"
	}
	return "its agent or key has too many that are open"
}

// affects reports whether usage in [from, to) may be missing because of the epoch, in Unix seconds. Nobody counts on
// usage of an epoch that has been silent for longer than SilentAfter.
func (f *Frontier) affects(from, to int64) bool {
	return f.through() < 1000*to && f.Seen+SilentAfter.Milliseconds() > 1000*from
}

// During are those of lost epochs that may have had usage in [from, to), in Unix seconds. It returns at most n, those
// heard of last first, and how many others there are.
func During(lost []Frontier, from, to int64, n int) ([]Frontier, int64) {
	found := slices.DeleteFunc(slices.Clone(lost), func(f Frontier) bool { return !f.affects(from, to) })
	slices.SortFunc(found, func(a, b Frontier) int { return cmp.Or(cmp.Compare(b.Seen, a.Seen), a.Epoch.compare(b.Epoch)) })
	return found[:min(n, len(found))], int64(max(len(found)-n, 0))
}
