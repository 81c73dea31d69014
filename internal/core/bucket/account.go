package bucket

// Account adds up what became of the leases of one limit, over all its buckets. The
// owner's.
type Account struct {
	Granted  int64 // by answers that arrived: lease.Grant.Most
	Unrun    int64 // of trickles, by renewals before the end of a term
	Returned int64 // by renewals that were answered
	Told     int64 // spent, by renewals that were answered
	Spent    int64
	Beyond   int64 // spent or returned above a lease
	Held     int64 // what live leases may still spend
	Booked   int64 // put into rows for the ledger
}

// Add adds o.
func (a *Account) Add(o Account) {
	a.Granted += o.Granted
	a.Unrun += o.Unrun
	a.Returned += o.Returned
	a.Told += o.Told
	a.Spent += o.Spent
	a.Beyond += o.Beyond
	a.Held += o.Held
	a.Booked += o.Booked
}

func (b *Bucket) endedLocked(number int64) (Account, bool) {
	p := b.ask
	if p == nil || p.number != number {
		return Account{}, false
	}
	spent := p.told - b.answered()
	return Account{
		Unrun: p.unrun, Returned: p.stock, Told: spent,
		Beyond: max(spent+p.stock+p.unrun-b.granted, 0),
	}, true
}

// Standing says what the bucket spent in all, and how the lease that it has stands.
func (b *Bucket) Standing() Account {
	b.mu.Lock()
	defer b.leave()
	b.foldLocked()
	return b.standingLocked()
}

// standingLocked is Standing after it was folded.
func (b *Bucket) standingLocked() Account {
	if b.counting {
		return Account{}
	}
	spent := b.admittedLocked() + b.owedLocked()
	a := Account{Spent: spent, Beyond: max(spent-b.answered()-b.granted, 0)}
	if b.live {
		a.Held = max(b.granted-(spent-b.answered()), 0)
	}
	return a
}
