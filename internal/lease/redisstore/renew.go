package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// A step is executed here, not in Redis. The bucket is read, the renewals are executed on it, and it is written
// if it is still the same. If it is not, another server renewed it meanwhile, or the node forgot it, and all
// begins again. So every step is executed once, on what the one before left. If a write's answer is lost, the
// next read finds the write in the holder's record. Redis does a seventh of the work that a script of the step
// would cost it.

const (
	// tries is how often a bucket is read that others keep changing. Each failed try is a step of another
	// server, and the pauses between tries leave room. After that the renewals are unavailable, and their
	// agents come again.
	tries = 10
	// pause is the longest before the second try; it doubles up to longestPause. They are drawn by lot.
	pause, longestPause = time.Millisecond, 16 * time.Millisecond
	// sweeps bounds how many fields one read looks at for records of holders long gone. A holder's first
	// renewal looks at two, so that holders who come only once do not pile up. Of later renewals one in sixteen
	// looks at one.
	sweeps, sweepEvery = 16, 16
	// spare is the most that a bucket is kept longer than it must be, in microseconds. So most writes need not
	// set the expiry anew, which goes to replicas as well.
	spare = 30_000_000
)

var errContended = errors.New("redis: other servers changed the bucket at each try")

// errClock means that a bucket was read, but not the time.
var errClock = errors.New("redis: the node did not tell the time")

// visit is what a batch has to do with one bucket.
type visit struct {
	key    string
	arg    any    // the key, for commands
	at     []int  // the renewals, as they were given
	looks  int    // fields to look at for records of the long gone
	fields int    // that are read
	alone  bool   // it reads the time itself
	forged bool   // no build wrote its value: it begins anew, as if lost
	clock  *visit // whose read tells the time
	reads  command
	sweep  *command // reads some fields by lot, after reads; nil for none
	writes command
}

// renew answers a batch: all renewals of one bucket in one step. It serves each node's buckets at the same time
// as the others'. One node executes its commands while another's steps are executed here, and no write waits
// for a node that hangs.
func (s *Store) renew(ctx context.Context, renewals []lease.Renewal, answers []lease.Answer) {
	groups := s.byNode(ctx, s.visits(renewals, answers))
	var others sync.WaitGroup
	for i, g := range groups {
		if i == len(groups)-1 {
			s.serve(ctx, g.node, g.visits, renewals, answers)
		} else {
			others.Go(func() { s.serve(ctx, g.node, g.visits, renewals, answers) })
		}
	}
	others.Wait()
}

// serve answers the renewals of one node's buckets.
func (s *Store) serve(ctx context.Context, node pipeliner, left []*visit, renewals []lease.Renewal, answers []lease.Answer) {
	if len(left) == 0 {
		return
	}
	address, hangs := addressOf(node), false
	asks, may := s.hanging.enter(address)
	if !may {
		fail(left, answers, errHangs)
		return
	}
	defer func() { s.hanging.leave(address, asks, hangs) }()
	for try := 0; len(left) > 0; try++ {
		if try == tries || try > 0 && !rest(ctx, try) {
			fail(left, answers, errors.Join(errContended, ctx.Err()))
			return
		}
		left, hangs = s.try(ctx, node, left, renewals, answers)
	}
}

func fail(visits []*visit, answers []lease.Answer, err error) {
	for _, v := range visits {
		for _, i := range v.at {
			answers[i] = lease.Answer{Err: unavailable(err)}
		}
	}
}

// unavailable is what the renewals are answered: of a later build's format that, and else that they may come again.
func unavailable(err error) error {
	if errors.Is(err, lease.ErrFormat) {
		return err
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
}

// rest waits for a moment before another try, unless there is no time for one.
func rest(ctx context.Context, try int) bool {
	t := time.NewTimer(rand.N(min(pause<<(try-1), longestPause)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// visits returns the buckets of a batch. What is not to be executed is answered.
func (s *Store) visits(renewals []lease.Renewal, answers []lease.Answer) []*visit {
	byKey := make(map[string]*visit, len(renewals))
	visits := make([]*visit, 0, len(renewals))
	all, first := make([]visit, len(renewals)), make([]int, len(renewals)) // most buckets have one renewal
	for i := range renewals {
		r := &renewals[i]
		if answers[i].Err = r.Check(); answers[i].Err != nil {
			continue
		}
		v := byKey[r.Key]
		if v == nil {
			v = &all[len(visits)]
			v.key, v.at = s.key(r), first[len(visits):len(visits):len(visits)+1]
			v.arg = v.key
			byKey[r.Key] = v
			visits = append(visits, v)
		}
		v.at = append(v.at, i)
		switch {
		case r.Number == r.Began:
			v.looks = min(v.looks+2, sweeps)
		case r.Number%sweepEvery == 0:
			v.looks = min(v.looks+1, sweeps)
		}
	}
	return visits
}

// try reads the buckets, executes the renewals and writes. It returns the visits to be tried again, and whether
// the node did not answer in time.
func (s *Store) try(ctx context.Context, node pipeliner, visits []*visit, renewals []lease.Renewal, answers []lease.Answer) (again []*visit, hangs bool) {
	d := newDesk()
	defer d.back()
	s.read(ctx, node, d, visits, renewals)
	writes, written := make([]*command, 0, len(visits)), make([]*visit, 0, len(visits))
	for _, v := range visits {
		switch writing, err := v.step(ctx, d, renewals, answers); {
		case redis.HasErrorPrefix(err, "WRONGTYPE") && !v.forged:
			v.forged = true
			again = append(again, v)
			_ = s.client.Del(ctx, v.key).Err() // where it fails, so does the next read
		case errors.Is(err, errClock):
			v.alone = true
			again = append(again, v)
		case err != nil:
			fail([]*visit{v}, answers, err)
			hangs = hangs || late(err)
		case writing:
			writes, written = append(writes, &v.writes), append(written, v)
		}
	}
	s.run(ctx, node, writes)
	for _, v := range written {
		switch done, err := v.writes.Int(); {
		case err != nil:
			fail([]*visit{v}, answers, err)
			hangs = hangs || late(err)
		case done == 0:
			again = append(again, v)
		}
	}
	return again, hangs
}

// read reads the buckets. A script reads one, and tells the node's time as well. A plain command reads each of
// the others, at a third of the cost. The script is last, so that the time is no earlier than any read.
func (s *Store) read(ctx context.Context, node pipeliner, d *desk, visits []*visit, renewals []lease.Renewal) {
	commands := make([]*command, 0, len(visits)+len(visits)/8)
	clock := visits[len(visits)-1]
	for _, v := range visits {
		if v.clock = clock; v.alone {
			v.clock = v
		}
		if v.clock != v {
			v.reads = plain(ctx, v.readArgs(d, renewals, "hmget", v.arg)...)
		} else {
			v.reads = scripted(ctx, readScript, v.readArgs(d, renewals, nil, nil, nil, v.arg))
		}
		commands = append(commands, &v.reads)
		// Records to sweep are read after the bucket: if the bucket is unchanged at the write, so are they.
		if v.sweep = nil; v.looks > 0 {
			sweep := plain(ctx, "hrandfield", v.arg, v.looks, "withvalues")
			v.sweep, commands = &sweep, append(commands, &sweep)
		}
	}
	s.run(ctx, node, commands)
}

// group is the buckets that are on one node, for all that is known here: they share a clock.
type group struct {
	node   pipeliner
	visits []*visit
}

func (s *Store) byNode(ctx context.Context, visits []*visit) []group {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []group{{s.client, visits}}
	}
	groups, at := make([]group, 0, 8), make(map[*redis.Client]int, 8)
	for _, v := range visits {
		node, err := c.MasterForKey(ctx, v.key)
		i, ok := at[node]
		if !ok {
			i = len(groups)
			at[node] = i
			groups = append(groups, group{node: node})
		}
		if err != nil { // the client may know more when it sends them
			v.alone, groups[i].node = true, c
		}
		groups[i].visits = append(groups[i].visits, v)
	}
	return groups
}

// readArgs are the fields that the renewals need, after other arguments: the log is the last of them.
func (v *visit) readArgs(d *desk, renewals []lease.Renewal, others ...any) []any {
	args := d.list(len(others) + len(v.at) + 2)
	args = append(append(args, others...), stateField)
	logged := false
	for _, i := range v.at {
		args = append(args, d.recordOf(renewals[i].Holder))
		logged = logged || renewals[i].Spec.Algorithm == limit.SlidingWindowLog
	}
	if logged {
		args = append(args, logField)
	}
	v.fields = len(args) - len(others)
	return args
}

// desk holds the steps of one try, executed one after the other. Their commands stay there until they were
// sent; then another try uses it. For a thousand buckets that is half a megabyte.
type desk struct {
	state    lease.State
	holders  map[string]*lease.Record
	records  []lease.Record // holders' that were read
	swept    lease.Record   // one that is looked at
	executed []int
	written  []byte
	args     []any
	holder   string // of whom field is
	field    any
}

var desks = sync.Pool{New: func() any { return new(desk) }}

func newDesk() *desk {
	d := desks.Get().(*desk)
	d.holders = make(map[string]*lease.Record, 1) // one that was large takes long to clear, for each bucket
	return d
}

// back gives the desk's room to others.
func (d *desk) back() {
	clear(d.args)
	room := desk{records: d.records[:0], executed: d.executed[:0], written: d.written[:0], args: d.args[:0]}
	room.state.Ring = d.state.Ring[:0]
	*d = room
	desks.Put(d)
}

// value returns what encode appends to a buffer. If the buffer grows, earlier values stay in the old one.
func (d *desk) value(encode func(to []byte) []byte) []byte {
	begin := len(d.written)
	d.written = encode(d.written)
	return d.written[begin:len(d.written):len(d.written)]
}

// list returns an empty list for n arguments.
func (d *desk) list(n int) []any {
	begin := len(d.args)
	d.args = slices.Grow(d.args, n)[:begin+n]
	return d.args[begin:begin:len(d.args)]
}

// recordOf returns a holder's field. Most renewals beside each other are of one.
func (d *desk) recordOf(holder string) any {
	if d.field == nil || d.holder != holder {
		d.holder, d.field = holder, recordPrefix+holder
	}
	return d.field
}

// step executes the renewals on what was read. It reports whether there is something to write.
func (v *visit) step(ctx context.Context, d *desk, renewals []lease.Renewal, answers []lease.Answer) (writing bool, err error) {
	values, err := v.reads.Slice()
	if err != nil {
		return false, err
	}
	if len(values) < v.fields {
		return false, errCorrupt
	}
	now, err := v.clock.now()
	if err != nil {
		return false, err
	}
	was, state, until := "", &d.state, int64(0)
	*state = lease.State{Ring: state.Ring[:0]}
	if b, ok := values[0].(string); ok {
		log := ""
		if v.fields > 1+len(v.at) {
			log, _ = values[v.fields-1].(string)
		}
		was = written(b)
		until, err = decodeState(state, b, log)
		switch {
		case errors.Is(err, errCorrupt):
			*state, until, v.forged = lease.State{Ring: state.Ring[:0]}, 0, true
		case err != nil:
			return false, fmt.Errorf("%s: %w", v.key, err)
		}
	}
	logged, offset := state.Algorithm == limit.SlidingWindowLog, state.Offset
	clear(d.holders)
	state.Holders, d.records = d.holders, slices.Grow(d.records[:0], len(v.at))
	executed, last := d.executed[:0], int64(0)
	for k, i := range v.at {
		r, a, steps := &renewals[i], &answers[i], state.Steps
		*a = lease.Answer{}
		if v.forged {
			r.Memory = lease.Memory{Since: now, Lost: true} // which it may have been
		}
		if b, ok := values[1+k].(string); ok && was != "" && !v.forged && state.Holders[r.Holder] == nil {
			d.records = append(d.records, lease.Record{})
			record := &d.records[len(d.records)-1]
			switch err := decodeRecord(record, b); {
			case err == nil && record.Start <= state.Last:
				state.Holders[r.Holder] = record
			case err == nil: // one of the future is as if it were not there
			case errors.Is(err, lease.ErrFormat): // a later build's; what no build wrote is as if it were not there
				a.Err = unavailable(fmt.Errorf("%s of %s: %w", r.Holder, v.key, err))
				continue
			}
		}
		at := now
		if r.Now > 0 {
			at = r.Now
		}
		if a.Grant, a.Err = state.Renew(at, r); state.Steps > steps {
			executed, last = append(executed, k), at
		}
	}
	if d.executed = executed; len(executed) == 0 {
		return false, nil
	}
	gone := v.longGone(d)
	if logged && state.Algorithm != limit.SlidingWindowLog {
		gone = append(gone, logField)
	}
	args := d.list(11 + len(gone) + 2*len(executed))[:3]
	ttl := int64(0)
	// After a clock's leap, or by another node's clock, until means another time.
	if until < state.Full || state.Offset != offset {
		keep := state.Full - last
		keep += min(keep, spare)
		ttl, until = keep/1000+1, last+keep
	}
	args = append(args, v.arg, was, ttl, len(gone))
	for _, field := range gone {
		args = append(args, field)
	}
	tag := rand.Uint64()
	args = append(args, stateField, d.value(func(to []byte) []byte { return encodeState(to, state, until, tag) }))
	if state.Algorithm == limit.SlidingWindowLog {
		args = append(args, logField, d.value(func(to []byte) []byte { return encodeLog(to, state) }))
	}
	fields := v.reads.Args()[len(v.reads.Args())-v.fields:]
	for _, k := range executed { // of a holder that came twice, twice the same
		record := state.Holders[renewals[v.at[k]].Holder]
		args = append(args, fields[1+k], d.value(func(to []byte) []byte { return encodeRecord(to, record) }))
	}
	v.writes = scripted(ctx, writeScript, args)
	return true, nil
}

// now returns the node's time as it was read with the bucket, in Unix microseconds.
func (v *visit) now() (int64, error) {
	values, err := v.reads.Slice()
	if err != nil || len(values) < v.fields+2 {
		return 0, errClock
	}
	seconds, _ := values[v.fields].(string)
	micros, _ := values[v.fields+1].(string)
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, wrong := strconv.ParseInt(micros, 10, 64)
	if err != nil || wrong != nil {
		return 0, errClock
	}
	return s*1_000_000 + us, nil
}

// longGone returns which of the fields that were looked at are records that may be dropped.
func (v *visit) longGone(d *desk) (fields []string) {
	if v.sweep == nil {
		return nil
	}
	some, _ := v.sweep.Slice() // one that failed finds nothing
	for ; len(some) > 0; some = some[1:] {
		var field, value string
		switch of := some[0].(type) {
		case []any: // by RESP3 each with its value
			if len(of) == 2 {
				field, _ = of[0].(string)
				value, _ = of[1].(string)
			}
		case string:
			if field = of; len(some) > 1 {
				some = some[1:]
				value, _ = some[0].(string)
			}
		}
		holder, ok := strings.CutPrefix(field, recordPrefix)
		if !ok || d.state.Holders[holder] != nil {
			continue
		}
		if decodeRecord(&d.swept, value) == nil && d.state.Gone(&d.swept) {
			fields = append(fields, field)
		}
	}
	return fields
}
