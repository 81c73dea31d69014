package export

import (
	"io"
	"reflect"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"github.com/f4ee788f/quota/internal/core/ledger"
)

// Parquet is written a group of rows at a time. A group is held in memory: so many rows, or fewer whose names have so
// many bytes. A name takes some five times its bytes in memory.
const (
	groupRows  = 50_000
	groupBytes = 8 << 20
)

// file is Parquet. Its columns are known only at run time. So its schema is that of a struct type made for them, whose
// fields keep the columns' order.
type file struct {
	columns
	w   *parquet.GenericWriter[any]
	row parquet.Row
	// Of the group that is held.
	rows, bytes int
}

func newParquet(w io.Writer, c columns) *file {
	fields := make([]reflect.StructField, 0, len(c.names()))
	for i, name := range c.names() {
		of, tag := reflect.TypeFor[int64](), name
		switch {
		case name == "start" && c.q.Every != ledger.EveryRange && i == 0:
			tag += ",timestamp(millisecond)"
		case i < len(c.names())-len(c.counts(&ledger.BreakdownRow{})):
			of, tag = reflect.TypeFor[string](), tag+",dict"
		}
		fields = append(fields, reflect.StructField{Name: "C" + strconv.Itoa(i), Type: of, Tag: reflect.StructTag(`parquet:` + strconv.Quote(tag))})
	}
	schema := parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface())
	return &file{columns: c, w: parquet.NewGenericWriter[any](w, schema, parquet.Compression(&parquet.Snappy), parquet.CreatedBy("quota", "1", ""))}
}

// Write adds a row.
func (f *file) Write(r *ledger.BreakdownRow) error {
	f.row = f.row[:0]
	add := func(v parquet.Value) { f.row = append(f.row, v.Level(0, 0, len(f.row))) }
	if f.q.Every != ledger.EveryRange {
		add(parquet.Int64Value(r.Start * 1000))
	}
	for i, n := range r.Names {
		name := Name(f.q.By[i], n)
		f.bytes += len(name)
		add(parquet.ByteArrayValue([]byte(name)))
	}
	for _, n := range f.counts(r) {
		add(parquet.Int64Value(n))
	}
	if _, err := f.w.WriteRows([]parquet.Row{f.row}); err != nil {
		return err
	}
	if f.rows++; f.rows < groupRows && f.bytes < groupBytes {
		return nil
	}
	f.rows, f.bytes = 0, 0
	return f.w.Flush()
}

// Close writes what is left, and the footer.
func (f *file) Close() error { return f.w.Close() }
