package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// A result of the load test, as it writes it, with what costs are made of.
const result = `{
  "gateways": 10,
  "tenants": 100,
  "seconds": 19.99,
  "decisions": 1999000,
  "renewed_buckets": 10400,
  "renewed_buckets_per_second": 500,
  "counted_seconds": 20.8,
  "redis_commands_per_second": 1500,
  "redis_scripts_per_second": 550,
  "redis_script_us": 12.5,
  "report_rows_per_second": 100,
  "cpu_seconds": {"loadtest": 9, "quota-server": 0.42, "redis-server": 0.63, "postgres": 0.21},
  "observed_seconds": 21,
  "buckets": 1000,
  "ledger_equal": true
}`

// Processor's time is of the seconds that it was observed, and renewals of those that they were counted: rates are divided, not counts.
func TestCostsOfAResult(t *testing.T) {
	r, err := read([]byte(result))
	if err != nil {
		t.Fatal(err)
	}
	got, err := costs(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name  string
		value float64
	}{
		{"server, µs a renewal", 40}, {"Redis, µs a renewal", 60}, {"Redis commands a renewal", 3}, {"scripts a renewal", 1.1}, {"renewals/s", 500},
		{"server, µs/s a live bucket", 20}, {"Redis commands/s a live bucket", 1.5},
		{"report rows/h", 360_000}, {"report rows/h a live bucket", 360}, {"Postgres, µs a row", 100},
	}
	if len(got) != len(want) || len(engineCurves) != len(want) {
		t.Fatalf("%d values for %d curves, want %d", len(got), len(engineCurves), len(want))
	}
	for i, w := range want {
		if engineCurves[i] != w.name || math.Abs(got[i]-w.value) > 1e-9*w.value {
			t.Errorf("%s is %g, want %s, %g", engineCurves[i], got[i], w.name, w.value)
		}
	}
}

// What the load test did not see is not told as 0.
func TestResultsThatLackAPart(t *testing.T) {
	for _, lacking := range []string{
		`"redis_commands_per_second": 1500,
  "redis_scripts_per_second": 550,
  "redis_script_us": 12.5,`,
		`"report_rows_per_second": 100,`, `"observed_seconds": 21,`, `"quota-server": 0.42,`, `"redis-server": 0.63,`,
	} {
		without := strings.Replace(result, lacking, "", 1)
		if without == result {
			t.Fatalf("the result does not have %s", lacking)
		}
		if r, err := read([]byte(without)); err == nil {
			t.Errorf("without %s the result is %+v, want an error", lacking, r)
		}
	}
	for _, lacking := range []string{`"renewed_buckets_per_second": 500,`, `"buckets": 1000,`} {
		r, err := read([]byte(strings.Replace(result, lacking, "", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := costs(r); err == nil {
			t.Errorf("without %s costs are %v, want an error", lacking, got)
		}
	}
}

// What is missing is told before anything is measured, with the flag that goes without.
func TestMissingProgramsAreTold(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := run("", 1, "", true, loadtest{filepath.Join(t.TempDir(), "loadtest")})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"-engines=false", "make build", "/quota-server", "redis-server"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, want %q in it", err, want)
		}
	}
}
