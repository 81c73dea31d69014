package agent

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/f4ee788f/quota/internal/core/bucket"
	"github.com/f4ee788f/quota/internal/core/limit"
	"github.com/f4ee788f/quota/internal/core/usage"
)

// disk is a journal's, of which only cells are of interest.
type disk struct {
	used   atomic.Int64
	write  func() // before each record; nil for nothing
	number uint32
}

func (d *disk) Append([]byte) error {
	if d.write != nil {
		d.write()
	}
	return nil
}

func (d *disk) Cell() (uint32, unsafe.Pointer, error) {
	d.number++
	d.used.Add(1)
	return d.number, unsafe.Pointer(new(bucket.Cell)), nil
}

func (d *disk) Free(uint32)              { d.used.Add(-1) }
func (d *disk) Size() int64              { return 0 }
func (d *disk) At(uint32) unsafe.Pointer { return nil }

func (d *disk) Rotate(func(add func([]byte) error) error) (func() error, error) {
	return nil, errors.ErrUnsupported
}

// A new bucket's record that waits for the disk holds up nobody: neither who asks for another, which is there, nor what is
// asked of the registry.
func TestNobodyWaitsForAnothersRecord(t *testing.T) {
	d, r := new(disk), NewRegistry(100)
	r.Keep(usage.NewJournal(d))
	adoptTop(t, r, 1)
	set := r.anonymous.Load()
	touch := func(tenant string) error {
		_, err := r.Touch(set, &set.List, 0, []limit.Attribute{{Name: limit.AttrTenant, Value: tenant}}, 1)
		return err
	}
	if err := touch("a"); err != nil {
		t.Fatal(err)
	}
	writes, written, made := make(chan struct{}), make(chan struct{}), make(chan error)
	var once sync.Once // cells are given back once the registry is garbage
	d.write = func() {
		once.Do(func() { close(writes) })
		<-written
	}
	go func() { made <- touch("b") }()
	<-writes
	asked := make(chan error)
	go func() {
		_, _, err := r.Learn("c")
		asked <- errors.Join(err, touch("a"))
	}()
	select {
	case err := <-asked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a request waits for the disk that another's bucket is told to")
	}
	close(written)
	if err := <-made; err != nil || r.Buckets() != 2 {
		t.Errorf("%v; %d buckets, want 2", err, r.Buckets())
	}
}

// A limit begins to feed a meter by a change of policy: its buckets have no cells, and are counted as such, once each.
func TestABucketThatBeginsToFeedAMeterIsCounted(t *testing.T) {
	d := new(disk)
	j := usage.NewJournal(d)
	r := NewRegistry(100)
	r.Keep(j)
	put := func(version int64, meter string) {
		rules, err := limit.CompilePolicy(&limit.Policy{Version: version, Limits: []limit.Limit{
			{Name: "l", By: []string{"tenant"}, Rate: limit.Rate{Units: 100, Per: 1e9}, Burst: 100, Meter: meter},
		}, Plans: []limit.Plan{{Name: "p"}}})
		if err != nil {
			t.Fatal(err)
		}
		r.Adopt(rules)
		r.FollowJournal()
	}
	put(1, "")
	if _, _, err := r.Learn("a"); err != nil {
		t.Fatal(err)
	}
	r.Unasked(1)
	r.Inform([]limit.Tenant{{ID: "a", Exists: true, Plan: "p"}})
	set := r.Find("a")
	e, err := r.Touch(set, &set.List, 0, []limit.Attribute{{Name: "tenant", Value: "a"}}, 1)
	if err != nil || e.Cell() != nil || j.Without() != 0 {
		t.Fatalf("%v, %d without a cell, want a bucket that needs none", err, j.Without())
	}
	for version := int64(2); version < 5; version++ {
		put(version, "m")
		if n := j.Without(); n != 1 {
			t.Errorf("version %d: %d buckets are without a cell, want 1", version, n)
		}
	}
}

// The cell of a bucket that was dropped is free for another, also where one of the bucket's values is the tenant that its usage is
// of: neither its feed nor what was booked keeps the bucket.
func TestADroppedBucketsCellIsFreed(t *testing.T) {
	d := new(disk)
	j := usage.NewJournal(d)
	o := usage.NewOutbox("gw", 7)
	o.Keep(j)
	r := NewRegistry(100)
	r.Keep(j)
	adoptTop(t, r, 1)
	const n = 8
	touch := func() {
		for i := range n {
			set := r.anonymous.Load()
			e, err := r.Touch(set, &set.List, 0, []limit.Attribute{{Name: limit.AttrTenant, Value: fmt.Sprint("tenant-", i)}}, 1)
			if err != nil {
				t.Fatal(err)
			}
			e.Admit(1)
			o.Usage.Collect(e, 300, 1)
		}
	}
	touch()
	adoptTop(t, r, 2)
	r.FollowJournal()
	touch()
	o.Freeze(1, false)
	r.Each(func(e *Entry) {
		if !r.Drop(e, func(e *Entry) { o.Usage.Collect(e, 300, 1) }) {
			t.Error("a bucket was not dropped")
		}
	})
	used := func() int {
		runtime.GC()
		return int(d.used.Load())
	}
	for until := time.Now().Add(10 * time.Second); used() > 0; {
		if time.Now().After(until) {
			t.Fatalf("%d of %d cells were not given back", used(), n)
		}
	}
	runtime.KeepAlive(r)
}

// adoptTop puts a policy in force whose one limit, of the top level, tells tenants apart and feeds a meter.
func adoptTop(t *testing.T, r *Registry, version int64) {
	t.Helper()
	rules, err := limit.CompilePolicy(&limit.Policy{Version: version, Limits: []limit.Limit{
		{Name: "l", By: []string{limit.AttrTenant}, Rate: limit.Rate{Units: 100, Per: 1e9}, Burst: 100, Meter: "m"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Adopt(rules)
}
