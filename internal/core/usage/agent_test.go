package usage

import (
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/ledger"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// buckets are what an agent has for these tests: of tenant a, one for each user, which feed a meter under the plan in force.
type buckets struct {
	j       *Journal
	version int64
	plan    string
	of      map[string]*fed
}

// fed is a bucket, and the row that it feeds.
type fed struct {
	bucket.Bucket
	in   *buckets
	user string
}

func bucketsOf(j *Journal) *buckets {
	return &buckets{j: j, version: 1, plan: "p", of: make(map[string]*fed)}
}

func (f *fed) Row(slot int64) (ledger.Row, bool) {
	return ledger.Row{Slot: slot, Tenant: "a", Limit: "l", Meter: "m", Version: f.in.version, Plan: f.in.plan, Attributes: "user=" + f.user}, true
}

func (*fed) Metered() bool { return true }
func (*fed) Overage() bool { return false }

var terms = bucket.TermsOf((&limit.Rule{Limit: limit.Limit{Name: "l", Algorithm: limit.TokenBucket, By: []string{"user"}, Rate: limit.Rate{Units: 100, Per: 1e9}, Burst: 100, Meter: "m", EpsilonPPM: 1}}).Hold())

// touch returns a user's bucket, and makes it if there is none.
func (b *buckets) touch(user string, now int64) *fed {
	f := b.of[user]
	if f == nil {
		f = &fed{in: b, user: user}
		row, _ := f.Row(0)
		at := b.j.Mount(row, false)
		f.Init(terms, at, true, 0, now)
		if at != nil {
			runtime.AddCleanup(f, b.j.Release, at)
		}
		b.of[user] = f
	}
	return f
}

func (b *buckets) collect(u *Usage, slot, now int64) {
	for _, f := range b.of {
		u.Collect(f, slot, now)
	}
}

func (b *buckets) seal() {
	b.j.Seal(func(seal func(*bucket.Cell, Counter)) {
		for _, f := range b.of {
			seal(f.Cell(), f)
		}
	})
}

// adopt puts another version and plan in force.
func (b *buckets) adopt(version int64, plan string) {
	b.version, b.plan = version, plan
	b.j.Follow(func(follow func(Fed) bool) {
		for _, f := range b.of {
			row, _ := f.Row(0)
			follow(Fed{Cell: f.Cell(), Row: row, Feeds: true, Booked: f.Booked})
		}
	})
}

// drop takes a bucket out, after all of its usage is booked.
func (b *buckets) drop(t *testing.T, u *Usage, user string) {
	f := b.of[user]
	f.Drain()
	if !f.Empty() {
		t.Fatal("the bucket is still in use")
	}
	u.Collect(f, 300, 1)
	delete(b.of, user)
}

// counters are a cell's, in the order in which they lie: tokens, back, pending, refused, two of what was put in, inherited, excused.
func counters(c *bucket.Cell) *[8]atomic.Int64 { return (*[8]atomic.Int64)(unsafe.Pointer(c)) }
