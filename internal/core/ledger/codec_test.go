package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/f4ee788f/quota/internal/core/unraced"
)

func someRows() []Row {
	return []Row{
		{Slot: 300, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 3, Attributes: "user=1", Admitted: 10, Overage: 2, Denied: 1},
		{Slot: 300, Tenant: "acme", Limit: "requests", Meter: "requests", Version: 3, Attributes: "user=2", Admitted: 7},
		{Slot: 600, Tenant: "", Limit: "login", Version: 4, Attributes: "ip=\xff", Denied: 9},
	}
}

// The encoding is a promise to every agent that ever sent a report: it must not change.
func TestEncodingIsFixed(t *testing.T) {
	want := "\x01" + // version
		"\x07" + "\x00" + "\x04acme" + "\x04ip=\xff" + "\x05login" + "\x08requests" + "\x06user=1" + "\x06user=2" +
		"\x03" + // rows: slot, tenant, limit, meter, version, attributes, admitted, overage, denied
		"\xac\x02\x01\x04\x04\x03\x05\x0a\x02\x01" +
		"\x00\x01\x04\x04\x03\x06\x07\x00\x00" +
		"\xac\x02\x00\x03\x00\x04\x02\x00\x00\x09"
	if got := string(EncodeRows(someRows())); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	r := NewReport("agent-1", 7, 2, 40, someRows(), 1_700_000_000_123, true)
	const digest = "0b938f11c32f5f64cb00b2d51fec55c3cd00b05ea2e1b02bf95a0590bf391eb1"
	if got := fmt.Sprintf("%x", r.Digest); got != digest {
		t.Errorf("digest: got %s, want %s", got, digest)
	}
	planned := someRows()
	planned[0].Plan = "paid"
	want = "\x02" + // where some row has a plan
		"\x08" + "\x00" + "\x04acme" + "\x04ip=\xff" + "\x05login" + "\x04paid" + "\x08requests" + "\x06user=1" + "\x06user=2" +
		"\x03" + // the plan's place comes after the attributes'
		"\xac\x02\x01\x05\x05\x03\x07\x00\x07\x00\x00" +
		"\x00\x01\x05\x05\x03\x06\x04\x0a\x02\x01" +
		"\xac\x02\x00\x03\x00\x04\x02\x00\x00\x00\x09"
	if got := string(EncodeRows(planned)); got != want {
		t.Errorf("with a plan:\ngot  %q\nwant %q", got, want)
	}
	if r.Before != 40 || r.After != 57 {
		t.Errorf("totals: got %d to %d, want 40 to 57", r.Before, r.After)
	}
	if err := r.Check(); err != nil {
		t.Errorf("check: %v", err)
	}
}

// Any order of rows, and any way they are split up, has one encoding.
func TestEncodingIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"", "a", "b", "acme", "\x00", "é"})
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Row {
			admitted := rapid.Int64Range(0, 1000).Draw(t, "admitted")
			return Row{
				Slot: 300 * rapid.Int64Range(0, 5).Draw(t, "slot"), Tenant: name.Draw(t, "tenant"), Limit: name.Draw(t, "limit"),
				Meter: name.Draw(t, "meter"), Version: rapid.Int64Range(0, 3).Draw(t, "version"), Plan: name.Draw(t, "plan"), Attributes: name.Draw(t, "attributes"),
				Admitted: admitted, Overage: rapid.Int64Range(0, admitted).Draw(t, "overage"), Denied: rapid.Int64Range(0, 9).Draw(t, "denied"),
			}
		}), 1, 50).Draw(t, "rows")
		kept := slices.Clone(rows)
		payload := EncodeRows(rows)
		if !slices.Equal(rows, kept) {
			t.Fatalf("the rows were changed: %v, were %v", rows, kept)
		}
		if again := EncodeRows(rapid.Permutation(rows).Draw(t, "order")); !bytes.Equal(payload, again) {
			t.Fatalf("in another order: got %x, want %x", again, payload)
		}
		decoded, err := DecodeRows(payload)
		if err != nil {
			t.Fatal(err)
		}
		want := map[Row]Sum{}
		for _, r := range rows {
			s := want[r.Key()]
			s.Add(Sum{r.Admitted, r.Overage, r.Denied})
			want[r.Key()] = s
		}
		for _, r := range decoded {
			if got := (Sum{r.Admitted, r.Overage, r.Denied}); got != want[r.Key()] {
				t.Fatalf("%v: got %v, want %v", r.Key(), got, want[r.Key()])
			}
			delete(want, r.Key())
		}
		if len(want) != 0 {
			t.Fatalf("missing: %v", want)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	good := string(EncodeRows(someRows()[:1])) // 01 04 .. strings .. 01 row
	row := func(r Row) string { return string(EncodeRows([]Row{r})) }
	base := Row{Slot: 300, Tenant: "t", Limit: "l", Meter: "m", Version: 1, Attributes: "z"}
	with := func(change func(*Row)) string { r := base; change(&r); return row(r) }
	for name, payload := range map[string]string{
		"another version":      "\x03" + good[1:],
		"plans, and none":      "\x02\x02\x00\x01a\x01" + "\x00\x01\x01\x01\x00\x01\x00\x01\x00\x00",
		"no place of a plan":   "\x02" + good[1:],
		"only a version":       "\x01",
		"no rows":              "\x01\x00\x00",
		"cut short":            good[:len(good)-1],
		"a byte too many":      good + "\x00",
		"negative admitted":    with(func(r *Row) { r.Admitted = -1 }),
		"overage above":        with(func(r *Row) { r.Admitted, r.Overage = 1, 2 }),
		"too many units":       with(func(r *Row) { r.Admitted = MaxReportUnits + 1 }),
		"too many denied":      with(func(r *Row) { r.Denied = MaxReportUnits + 1 }),
		"slot too late":        with(func(r *Row) { r.Slot = maxSlot + 1 }),
		"slot negative":        with(func(r *Row) { r.Slot = -300 }),
		"version negative":     with(func(r *Row) { r.Version = -1 }),
		"a row twice":          "\x01\x01\x01a\x02" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x01\x00\x00", 2),
		"rows out of order":    "\x01\x02\x01a\x01b\x02" + "\x00\x01\x00\x00\x00\x00\x01\x00\x00" + "\x00\x00\x00\x00\x00\x00\x01\x00\x00",
		"strings out of order": "\x01\x02\x01b\x01a\x01" + "\x00\x00\x01\x00\x00\x00\x01\x00\x00",
		"a string twice":       "\x01\x02\x01a\x01a\x01" + "\x00\x00\x01\x00\x00\x00\x01\x00\x00",
		"an unused string":     "\x01\x02\x01a\x01b\x01" + "\x00\x00\x00\x00\x00\x00\x01\x00\x00",
		"no such string":       "\x01\x01\x01a\x01" + "\x00\x00\x00\x01\x00\x00\x01\x00\x00",
		"number not minimal":   "\x01\x01\x01a\x81\x00" + "\x00\x00\x00\x00\x00\x00\x01\x00\x00",
		"number without end":   "\x01" + strings.Repeat("\xff", 12),
		"a lie about strings":  "\x01\xff\xff\x0f",
		"a lie about rows":     "\x01\x01\x01a\xff\xff\x03\x00",
		"too long":             "\x01" + strings.Repeat("x", MaxPayload),
	} {
		if rows, err := DecodeRows([]byte(payload)); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: got %v, %v, want ErrEncoding", name, rows, err)
		}
	}
	many := make([]Row, MaxRows+1)
	for i := range many {
		many[i] = base
		many[i].Slot = int64(i)
	}
	if _, err := DecodeRows(EncodeRows(many)); !errors.Is(err, ErrEncoding) {
		t.Errorf("%d rows: got %v, want ErrEncoding", len(many), err)
	}
	if _, err := DecodeRows(EncodeRows(many[:MaxRows])); err != nil {
		t.Errorf("%d rows: %v", MaxRows, err)
	}
	sum := []Row{base, base}
	sum[0].Admitted, sum[1].Admitted, sum[1].Slot = MaxReportUnits, 1, 600
	if _, err := DecodeRows(EncodeRows(sum)); !errors.Is(err, ErrEncoding) {
		t.Errorf("a sum above the bound: got %v, want ErrEncoding", err)
	}
}

// Split's parts encode within the bounds and are all the rows.
func TestSplit(t *testing.T) {
	unraced.Only(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 1000, MaxRows, MaxRows + 1, 3 * MaxRows} {
		for _, length := range []int{1, 200, 2600} {
			if n*length > 200<<20 {
				continue
			}
			rows := make([]Row, n)
			for i := range rows {
				rows[i] = Row{Slot: int64(i), Tenant: "t", Limit: "l", Attributes: strings.Repeat("x", rng.IntN(length)) + fmt.Sprint(i), Admitted: 1}
			}
			var total int
			for _, part := range Split(rows) {
				total += len(part)
				decoded, err := DecodeRows(EncodeRows(part))
				if err != nil || len(decoded) != len(part) {
					t.Fatalf("%d rows of %d bytes: a part of %d: %v", n, length, len(part), err)
				}
			}
			if total != n {
				t.Errorf("%d rows: parts hold %d", n, total)
			}
		}
	}
}

func FuzzDecodeRows(f *testing.F) {
	f.Add([]byte{})
	f.Add(EncodeRows(someRows()))
	f.Add(EncodeRows(someRows()[:1]))
	f.Add([]byte("\x01\x01\x01a\x01\x00\x00\x00\x00\x00\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		rows, err := DecodeRows(payload)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("got %v, want ErrEncoding", err)
			}
			return
		}
		if again := EncodeRows(rows); !bytes.Equal(payload, again) {
			t.Fatalf("decoded, it encodes as\n%x\nwas\n%x", again, payload)
		}
		for _, r := range rows {
			if r.Admitted < 0 || r.Overage < 0 || r.Denied < 0 || r.Overage > r.Admitted || r.Slot < 0 || r.Version < 0 {
				t.Fatalf("accepted %+v", r)
			}
		}
	})
}

// Whatever is kept of a bad report is read back as it came.
func FuzzDecodeReport(f *testing.F) {
	r := NewReport("a", 1, 1, 0, someRows(), 5, false)
	f.Add(encodeReport(&r))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeReport(body)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("got %v, want ErrEncoding", err)
			}
			return
		}
		again, err := DecodeReport(encodeReport(&r))
		if err != nil || again.Sum() != r.Sum() || again.Digest != r.Digest {
			t.Fatalf("got %+v, %v, want %+v", again, err, r)
		}
		_ = r.Check()
	})
}

func BenchmarkEncodeRows(b *testing.B) {
	rows := benchRows(5000)
	b.ReportAllocs()
	for b.Loop() {
		EncodeRows(rows)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5000, "ns/row")
	b.ReportMetric(float64(len(EncodeRows(rows)))/5000, "bytes/row")
}

func BenchmarkDecodeRows(b *testing.B) {
	payload := EncodeRows(benchRows(5000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRows(payload); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5000, "ns/row")
}

func benchRows(n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{
			Slot: 1_775_001_000, Tenant: fmt.Sprintf("tenant-%06d", i), Limit: "requests", Meter: "requests", Version: 12,
			Attributes: "tenant=" + fmt.Sprintf("tenant-%06d", i), Admitted: int64(1000 + i), Denied: int64(i % 3),
		}
	}
	return rows
}
