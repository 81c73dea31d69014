package lease

// What a lease is worth, for those who add leases up. Servers and agents come to the same figures: both count
// what was on the wire, and terms there are whole milliseconds.

// Most returns the most units that the lease lets its holder spend: at once, in the next window, and by the
// whole term's trickle.
func (g *Grant) Most() int64 { return g.Tokens + g.Next + trickled(g.Trickle, g.TTL) }

// Unrun returns the units that the trickle of the ended lease would still have brought.
func (r *Renewal) Unrun() int64 { return trickled(r.Trickle, r.ExpiresIn) }

func trickled(trickle, micros int64) int64 {
	return int64(float64(float64(trickle)*float64(micros/1000)) / 1e9)
}

// Account adds up the units of one limit's leases, over all its buckets. The owner's.
type Account struct {
	Granted  int64 // by answers that arrived: Grant.Most
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

// Jitter returns a number below n that differs between conversations and renewals. It is a hash of their numbers.
func Jitter(began, number, n int64) int64 {
	h := uint64(began)*0x9e3779b97f4a7c15 + uint64(number)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return int64((h ^ h>>31) % uint64(n))
}
