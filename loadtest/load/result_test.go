package load

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompareFindsEveryKindOfDifference(t *testing.T) {
	for _, test := range []struct {
		name             string
		admitted, ledger map[string]int64
		equal            bool
		listed           int
	}{
		{"equal", map[string]int64{"a": 3, "b": 0}, map[string]int64{"a": 3}, true, 0},
		{"a unit lost", map[string]int64{"a": 3}, map[string]int64{"a": 2}, false, 1},
		{"a unit too many", map[string]int64{"a": 3}, map[string]int64{"a": 4}, false, 1},
		{"a tenant lost", map[string]int64{"a": 3, "b": 1}, map[string]int64{"a": 3}, false, 1},
		{"a tenant from nowhere", map[string]int64{"a": 3}, map[string]int64{"a": 3, "z": 1}, false, 1},
		{"the sum alone is not enough", map[string]int64{"a": 3, "b": 1}, map[string]int64{"a": 1, "b": 3}, false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Result
			r.compare(test.admitted, test.ledger)
			if r.LedgerEqual != test.equal || len(r.Differences) != test.listed {
				t.Errorf("got equal %v and %v, want %v and %d listed", r.LedgerEqual, r.Differences, test.equal, test.listed)
			}
		})
	}
}

func TestResultIsWrittenForScriptsAndPeople(t *testing.T) {
	r := Result{Gateways: 2, Tenants: 1, Seconds: 2, Decisions: 1000, DecisionsPerSecond: 500, Denied: 900, RPCs: 5, RPCRatio: 0.005, RenewedBuckets: 10, RenewedRatio: 0.01, Engines: "memory", Shape: Uniform}
	r.compare(map[string]int64{"a": 100}, map[string]int64{"a": 99})
	file := filepath.Join(t.TempDir(), "r.json")
	if err := r.WriteJSON(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"gateways": 2.0, "tenants": 1.0, "seconds": 2.0, "decisions_per_second": 500.0, "admitted_units": 100.0,
		"denied": 900.0, "rpcs": 5.0, "rpc_ratio": 0.005, "renewed_buckets": 10.0, "renewed_ratio": 0.01,
		"ledger_units": 99.0, "ledger_equal": false,
	} {
		if fields[name] != want {
			t.Errorf("%s: got %v, want %v", name, fields[name], want)
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NO", "admitted 100, ledger 99 (-1)", "0.50000 % of decisions"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for _, name := range []string{"over_bound", "error_pct", "redis_commands_per_second", "report_rows_per_second", "cpu_seconds", "agent_bytes_per_bucket"} {
		if v, there := fields[name]; there {
			t.Errorf("%s: got %v of what was not seen", name, v)
		}
	}
	r.Samples = []Sample{{Second: 1, Decisions: 500, CPU: map[string]float64{"redis-server": 0.5}}, {Second: 2, Decisions: 700}}
	page := filepath.Join(t.TempDir(), "r.html")
	if err := r.WriteHTML(page); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"admitted 100, ledger 99", "<polyline", "redis-server", ">800<", ">0.6<", ">2 s<"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
	if err := r.WriteJSON(filepath.Join(t.TempDir(), "none", "r.json")); err == nil {
		t.Error("writing into a directory that is not there: got no error")
	}
}

// What is denied before the warming ends is told apart from what is denied later.
func TestWhatIsDeniedWhileWarming(t *testing.T) {
	made := func(at int64, allowed ...bool) record {
		r := record{at: at}
		for _, a := range allowed {
			r.add(a)
		}
		return r
	}
	records := [][]record{{made(10, true), made(900, true, false, true), made(1_000, false, false)}, {made(999, false)}, nil}
	if decisions, denied := warming(records, 1_000); decisions != 5 || denied != 2 {
		t.Errorf("%d of %d are denied while warming, want 2 of 5", denied, decisions)
	}
}
