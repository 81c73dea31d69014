package redisstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/f4ee788f/quota/internal/core/lease"
	"github.com/f4ee788f/quota/internal/core/lease/leasetest"
	"github.com/f4ee788f/quota/internal/core/limit"
)

// sample is a bucket as the builds up to format 101 wrote it, before formats were named and since, and what it is.
type sample struct {
	Named, Unnamed map[string][]byte // by field
	Want           lease.State
}

func samples(t testing.TB) (all []sample) {
	t.Helper()
	text, err := os.ReadFile("testdata/format101.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("%d samples: %v", len(all), err)
	}
	return all
}

// decode reads the fields of a bucket.
func decode(fields map[string][]byte) (*lease.State, error) {
	s := &lease.State{Ring: make(lease.Ring, 3)} // whose ring is written over
	if _, err := decodeState(s, string(fields[stateField]), string(fields[logField])); err != nil {
		return nil, err
	}
	s.Holders = make(map[string]*lease.Record)
	for field, b := range fields {
		if holder, ok := strings.CutPrefix(field, recordPrefix); ok {
			s.Holders[holder] = &lease.Record{Lent: 1}
			if err := decodeRecord(s.Holders[holder], string(b)); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// encode is decode back.
func encode(s *lease.State) map[string][]byte {
	fields := map[string][]byte{stateField: encodeState(nil, s, s.Last+1, 1)}
	if s.Algorithm == limit.SlidingWindowLog {
		fields[logField] = encodeLog(nil, s)
	}
	for holder, r := range s.Holders {
		fields[recordPrefix+holder] = encodeRecord(nil, r)
	}
	return fields
}

// Buckets of the builds before are read as they were meant, and so are this build's own.
func TestFormats(t *testing.T) {
	for i, sample := range samples(t) {
		want := sample.Want
		want.Steps = 0
		unnamed := want
		unnamed.Spent, unnamed.Returned = 0, 0 // which they did not keep
		shrunk := want
		shrunk.Forgiven = 900 * limit.Micro
		for how, fields := range map[string]map[string][]byte{
			"named": sample.Named, "unnamed": sample.Unnamed, "own": encode(&want), "shrunk": encode(&shrunk),
		} {
			got, err := decode(fields)
			if err != nil {
				t.Errorf("sample %d, %s: %v", i, how, err)
				continue
			}
			want := want
			switch how {
			case "unnamed":
				want = unnamed
			case "shrunk":
				want = shrunk
			}
			if len(want.Log) == 0 {
				got.Log = want.Log
			}
			if !reflect.DeepEqual(got, &want) {
				t.Errorf("sample %d, %s:\n got %+v\nwant %+v", i, how, got, &want)
			}
		}
	}
}

// What any step leaves can be read again, and is what it was. That holds at the largest limits there are, in
// random histories. Clocks leap, holders come late and limits change.
func TestEveryStateCanBeRead(t *testing.T) {
	const holders = 3
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		pick := func(of ...int64) int64 { return of[rnd.IntN(len(of))] }
		state, now, period := new(lease.State), int64(1_760_000_000_000_000), pick(1_000_000, 60_000_000, 86_400_000_000, 2_592_000_000_000)
		last := make([]lease.Grant, holders)
		var admitted [holders]int64
		for number := int64(1); number <= 60; number++ {
			now += rnd.Int64N(pick(1_000, 1_000_000, 20_000_000, 4_000_000_000)) - pick(0, 0, 5_000_000, 700_000_000)
			holder, units := rnd.IntN(holders), pick(1, 1_000, limit.MaxUnits)
			bucket := leasetest.Bucket(units, pick(limit.MaxUnits, limit.MaxUnits, 1_000))
			bucket.Period = period
			specs := []lease.Spec{
				bucket, leasetest.Window(units, period, now), leasetest.Sliding(units, period, now),
				leasetest.Log(min(units, limit.MaxLog), period), leasetest.Slots(units),
			}
			g, waiting := &last[holder], rnd.Int64N(units+1)
			r := lease.Renewal{
				Key: "k", Spec: specs[(int(seed)+rnd.IntN(20)/19)%len(specs)], Holder: strconv.Itoa(holder), Number: number, Began: 1,
				Told: admitted[holder], Waiting: waiting, Largest: waiting, Elapsed: rnd.Int64N(20_000_000),
				Window: g.ValidFrom, Trickle: g.Trickle, Generation: g.Generation,
			}
			r.Spec.Hold = pick(0, lease.MaxHold)
			if rnd.IntN(4) == 0 {
				r.Generation, r.ExpiresIn = r.Generation+1, 1_000_000 // a proof that the store forgot
			}
			admitted[holder] += rnd.Int64N(2*units + 1)
			r.Admitted = admitted[holder]
			err := r.Check()
			if err == nil {
				*g, err = state.Renew(now, &r)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := *state
			want.Full, want.Steps = 0, 0
			got, err := decode(encode(state))
			if err != nil {
				t.Fatalf("seed %d, step %d: %v of %+v", seed, number, err, want)
			}
			if len(want.Log) == 0 {
				got.Log = want.Log
			}
			for _, r := range got.Holders {
				if r.Start > got.Last {
					t.Fatalf("seed %d, step %d: a record began at %d, after the bucket's %d", seed, number, r.Start, got.Last)
				}
			}
			if !reflect.DeepEqual(got, &want) {
				t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, number, got, &want)
			}
		}
	}
}

// Numbers are written as everywhere, and read whatever follows them.
func TestVarints(t *testing.T) {
	for bit := range 64 {
		for _, v := range []uint64{1<<bit - 1, 1 << bit, 1<<bit | 1, rand.Uint64() >> bit} {
			want := binary.AppendUvarint([]byte("before"), v)
			if got := appendUvarint([]byte("before"), v); !bytes.Equal(got, want) {
				t.Errorf("%d: wrote %x, want %x", v, got, want)
			}
			for _, after := range []string{"", "\x80", "\x01\xff\xff\xff\xff\xff\xff\xff"} {
				if got, n := uvarint(string(want[6:]) + after); got != v || n != len(want)-6 {
					t.Errorf("%x: read %d of %d bytes, want %d of %d", want[6:], got, n, v, len(want)-6)
				}
			}
			for cut := range len(want) - 6 {
				if got, n := uvarint(string(want[6 : 6+cut])); n != 0 {
					t.Errorf("%x: read %d of %d bytes, want none", want[6:6+cut], got, n)
				}
			}
		}
	}
}

// No value of a bucket makes a step panic or run for long, whoever wrote it. A value that can be read is
// written as it was.
func FuzzFormat(f *testing.F) {
	for _, s := range samples(f) {
		shrunk := s.Want
		shrunk.Forgiven = limit.Micro
		for _, fields := range []map[string][]byte{s.Named, encode(&s.Want), encode(&shrunk)} {
			for holder := range s.Want.Holders {
				f.Add(fields[stateField], fields[logField], fields[recordPrefix+holder], s.Want.Last)
				break
			}
		}
	}
	f.Fuzz(func(t *testing.T, b, log, record []byte, now int64) {
		fields := map[string][]byte{stateField: b, logField: log, recordPrefix + "a": record}
		s, err := decode(fields)
		if err != nil {
			if !errors.Is(err, errCorrupt) && !errors.Is(err, lease.ErrFormat) {
				t.Errorf("got %v, want %v or %v", err, errCorrupt, lease.ErrFormat)
			}
			return
		}
		again, err := decode(encode(s))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("written and read again: %v\n got %+v\nwant %+v", err, again, s)
		}
		now = min(max(now, 1), maxTime/2)
		for _, spec := range []lease.Spec{
			leasetest.Bucket(10, 100), leasetest.Window(10, 1_000_000, now), leasetest.Sliding(10, 1_000_000, now),
			leasetest.Log(10, 1_000_000), leasetest.Slots(10),
		} {
			r := lease.Renewal{Key: "k", Spec: spec, Holder: "a", Number: 1 << 40, Began: 1, Waiting: 1, Elapsed: 1_000}
			if s, err := decode(fields); err == nil {
				_, _ = s.Renew(now, &r)
			}
		}
	})
}
