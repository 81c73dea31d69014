package export

import (
	"bytes"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

func write(t *testing.T, f Format, q *ledger.BreakdownQuery, rows ...ledger.BreakdownRow) string {
	t.Helper()
	var b bytes.Buffer
	w := New(&b, f, q)
	for i := range rows {
		if err := w.Write(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var sample = []ledger.BreakdownRow{
	{Start: 1775044800, Names: []string{"acme", "a=1" + ledger.AttributeSep + "b=\"x\""}, Sum: ledger.Sum{Admitted: 5, Overage: 1, Denied: 2}, Peak: 3},
	{Start: 1775131200, Names: []string{"zeta", ""}, Sum: ledger.Sum{Admitted: -4}},
}

func sampleQuery(t *testing.T) *ledger.BreakdownQuery {
	t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return &ledger.BreakdownQuery{Every: ledger.EveryDay, Zone: berlin, By: []string{"tenant", "attributes"}, Peak: true}
}

func TestText(t *testing.T) {
	q := sampleQuery(t)
	want := "start,tenant,attributes,admitted,overage,denied,peak\n" +
		"2026-04-01T14:00:00+02:00,acme,\"a=1,b=\"\"x\"\"\",5,1,2,3\n2026-04-02T14:00:00+02:00,zeta,,-4,0,0,0\n"
	if got := write(t, CSV, q, sample...); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want = `{"start":"2026-04-01T14:00:00+02:00","tenant":"acme","attributes":"a=1,b=\"x\"","admitted":5,"overage":1,"denied":2,"peak":3}` + "\n" +
		`{"start":"2026-04-02T14:00:00+02:00","tenant":"zeta","attributes":"","admitted":-4,"overage":0,"denied":0,"peak":0}` + "\n"
	if got := write(t, JSONL, q, sample...); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	total := &ledger.BreakdownQuery{}
	if got := write(t, CSV, total); got != "admitted,overage,denied\n" {
		t.Errorf("of nothing: %q, want a header", got)
	}
	if got := write(t, JSONL, total, ledger.BreakdownRow{Sum: ledger.Sum{Admitted: 7}}); got != `{"admitted":7,"overage":0,"denied":0}`+"\n" {
		t.Errorf("of one sum: %q", got)
	}
}

// What a reader of Parquet finds is what was written, in its order and types.
func TestParquet(t *testing.T) {
	q := sampleQuery(t)
	data := write(t, Parquet, q, sample...)
	if again := write(t, Parquet, q, sample...); again != data {
		t.Error("the same rows give other bytes")
	}
	f, err := parquet.OpenFile(strings.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range f.Root().Columns() {
		names = append(names, c.Name())
	}
	if got := strings.Join(names, ","); got != "start,tenant,attributes,admitted,overage,denied,peak" {
		t.Errorf("columns %s", got)
	}
	type record struct {
		Start      time.Time `parquet:"start,timestamp(millisecond)"`
		Tenant     string    `parquet:"tenant"`
		Attributes string    `parquet:"attributes"`
		Admitted   int64     `parquet:"admitted"`
		Overage    int64     `parquet:"overage"`
		Denied     int64     `parquet:"denied"`
		Peak       int64     `parquet:"peak"`
	}
	got, err := parquet.Read[record](strings.NewReader(data), int64(len(data)))
	if err != nil || len(got) != 2 || got[0].Start.Unix() != 1775044800 || got[0].Attributes != `a=1,b="x"` || got[0].Overage != 1 || got[0].Peak != 3 || got[1].Tenant != "zeta" || got[1].Admitted != -4 {
		t.Errorf("read %+v, %v", got, err)
	}
	if empty := write(t, Parquet, q); len(empty) == 0 {
		t.Error("of nothing: no file")
	}
}

// A file of any length is written in memory for one group of rows.
func TestBounded(t *testing.T) {
	for f, name := range map[Format]string{CSV: "csv", JSONL: "jsonl", Parquet: "parquet"} {
		q := &ledger.BreakdownQuery{Every: ledger.EverySlot, By: []string{"tenant", "limit"}}
		w := New(io.Discard, f, q)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 6 * groupRows {
			if err := w.Write(&ledger.BreakdownRow{Start: int64(i) * 300, Names: []string{"tenant-" + string(rune('a'+i%26)), "requests"}, Sum: ledger.Sum{Admitted: int64(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 32<<20 {
			t.Errorf("%s holds %d MB after %d rows", name, held>>20, 6*groupRows)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Attributes as long and as many as there may be do not fill a group of Parquet.
func TestBoundedByBytes(t *testing.T) {
	w := New(io.Discard, Parquet, &ledger.BreakdownQuery{By: []string{"attributes"}})
	pad := strings.Repeat("x", ledger.MaxAttributes-10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := int64(0)
	for i := range 20_000 {
		if err := w.Write(&ledger.BreakdownRow{Names: []string{strconv.Itoa(i) + pad}}); err != nil {
			t.Fatal(err)
		}
		if i%3_000 == 2_999 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			most = max(most, int64(after.HeapAlloc)-int64(before.HeapAlloc))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("it held %d MB", most>>20)
	if most > 64<<20 {
		t.Errorf("it held %d MB", most>>20)
	}
}

// A name that a spreadsheet would take for a formula is text in CSV, and itself elsewhere.
func TestFormulas(t *testing.T) {
	q := &ledger.BreakdownQuery{By: []string{"attribute:endpoint"}}
	row := ledger.BreakdownRow{Names: []string{"=1+1"}, Sum: ledger.Sum{Admitted: -4}}
	if got, want := write(t, CSV, q, row), "attribute:endpoint,admitted,overage,denied\n'=1+1,-4,0,0\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := write(t, JSONL, q, row); !strings.Contains(got, `"=1+1"`) {
		t.Errorf("JSON: %s", got)
	}
}

// Rows that differ have names that differ; a value that stands alone is as it is.
func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, n := range []string{"a=1" + ledger.AttributeSep + "b=2", "a=1,b=2", `a=1\,b=2`, `a=1\` + ledger.AttributeSep + "b=2"} {
		name := Name(ledger.DimAttributes, n)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are both %s", n, other, name)
		}
		seen[name] = n
	}
	if got := Name(ledger.DimAttribute+"a", `1,\`); got != `1,\` {
		t.Errorf("one value: %s", got)
	}
}
